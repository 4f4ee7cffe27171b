"""The files of a model's tokenizer that are on this machine: in its folder, or in the cache of the Hugging Face hub."""

from __future__ import annotations

import json
import warnings
from contextlib import suppress
from pathlib import Path

from tuneyard.api import TuneyardError
from tuneyard.api.local_files import hub_name
from tuneyard.runtime.references import named_model
from tuneyard.storage import is_local, local_path
from tuneyard.training.model_finder import find_model, is_name

TOKENIZER, SETTINGS, TEMPLATE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"


def tokenizer_file(model: str, name: str, *, revision: str | None, base_dir: Path) -> Path | None:
    """A file of a model's tokenizer, where it is on this machine already."""
    uri = named_model(model, base_dir)
    if not is_name(uri):
        folder = _folder(uri) if is_local(uri) else None
        return folder / name if folder is not None and (folder / name).is_file() else None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # in a notebook, tqdm asks for ipywidgets
            from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return None
    found = None
    with suppress(ValueError):  # a name that the hub does not allow
        found = try_to_load_from_cache(hub_name(uri), name, revision=revision)
    return Path(found) if isinstance(found, str) else None


def _folder(uri: str) -> Path | None:
    """The folder of the tokenizer of a model on this machine: an adapter has its own, or that of its base."""
    try:
        found = find_model(uri, checked=False)
    except TuneyardError:  # a folder of a tokenizer alone
        return local_path(uri)
    folders = [local_path(each) for each in (found.adapter_uri, found.model_uri) if each and is_local(each)]
    return next((folder for folder in folders if (folder / SETTINGS).is_file() or (folder / TOKENIZER).is_file()), None)


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
