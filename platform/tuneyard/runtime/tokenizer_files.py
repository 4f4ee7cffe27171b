"""The files of a model's tokenizer that are on this machine: in its folder, or in the cache of the Hugging Face hub."""

from __future__ import annotations

import json
import warnings
from contextlib import suppress
from pathlib import Path

from tuneyard.api.local_files import looks_like_path
from tuneyard.runtime.references import named_model
from tuneyard.storage import is_local, local_path

TOKENIZER, SETTINGS, TEMPLATE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"


def tokenizer_file(model: str, name: str, *, revision: str | None, base_dir: Path) -> Path | None:
    """A file of a model's tokenizer, where it is on this machine already."""
    uri = named_model(model, base_dir)
    if is_local(uri) and (local_path(uri) / name).is_file():
        return local_path(uri) / name
    if looks_like_path(uri):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # in a notebook, tqdm asks for ipywidgets
            from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return None
    found = None
    with suppress(ValueError):  # a name that the hub does not allow
        found = try_to_load_from_cache(model, name, revision=revision)
    return Path(found) if isinstance(found, str) else None


def has_chat_template(model: str, *, revision: str | None, base_dir: Path) -> bool | None:
    """Whether a model's tokenizer has a chat template; None where the tokenizer is not on this machine."""
    template, settings, tokenizer = (
        tokenizer_file(model, name, revision=revision, base_dir=base_dir) for name in (TEMPLATE, SETTINGS, TOKENIZER)
    )
    if template is not None:
        return True
    if settings is None:
        return None if tokenizer is None else False
    try:
        return bool(json.loads(settings.read_text(encoding="utf-8")).get("chat_template"))
    except (OSError, ValueError, AttributeError):  # loading the tokenizer says what is wrong with it
        return None
