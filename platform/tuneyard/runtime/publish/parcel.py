"""What of a model folder leaves this machine, in a folder of its own: weights, configuration, tokenizer and card.

What stays here: manifests and certificates, which hold local paths, signatures over files that change on the way, optimizer states, logs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from tuneyard.api import BadInput
from tuneyard.api.errors import said_by
from tuneyard.api.pointers import refuse_pointers
from tuneyard.catalog.adapter_files import check_adapter_files
from tuneyard.catalog.weight_files import check_weight_files
from tuneyard.scoring.model_folder import model_folder
from tuneyard.training.model_finder import FoundModel
from tuneyard.training.published import is_hub_id, without_paths

CARD, _ADAPTER = "README.md", "adapter_config.json"
_WEIGHTS = "*.safetensors"
_LEAVE = (
    *(_WEIGHTS, "*.safetensors.index.json", "config.json", "generation_config.json", _ADAPTER, CARD, "LICENSE*", "*.py"),
    *("tokenizer*.json", "tokenizer.model", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "spiece.model"),
    *("chat_template.jinja", "preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json"),
)
"""Patterns of names. A file of another name stays, and is named."""
_MORE_TEMPLATES = "additional_chat_templates/*.jinja"
_FRONT = re.compile(r"\A---\n(.*?\n)---[ \t]*\n", re.DOTALL)


@dataclass(frozen=True)
class Parcel:
    """`folder`: symbolic links to files of the model, and files that were rewritten. `base`: the base model, where others know it."""

    folder: Path
    base: str | None
    left: tuple[str, ...]

    @property
    def files(self) -> list[Path]:
        return sorted(path for path in self.folder.rglob("*") if path.is_file())

    @property
    def size_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.files)


@contextmanager
def packed(found: FoundModel, base: str | None) -> Iterator[Parcel]:
    """A parcel of the model, while the context lasts. `base`: the name under which others know the base model of an adapter.

    Raises BadInput for weights in another form than safetensors, and for an adapter whose base others cannot load.
    """
    known = _base_for_others(found, base)
    with TemporaryDirectory(prefix="tuneyard-push-") as scratch:
        source = model_folder(found.uri, Path(scratch) / "source", found.revision).resolve()
        refuse_pointers(source)
        check_adapter_files(source) if found.origin is not None else check_weight_files(source)
        has_code = _has_code(source)
        folder = Path(scratch) / "parcel"
        folder.mkdir()
        left = []
        for path in sorted(source.rglob("*")):
            name = path.relative_to(source).as_posix()
            if path.is_dir():
                continue
            if not _leaves(name) or (name.endswith(".py") and not has_code):
                left.append(name)
                continue
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).symlink_to(path)
        if not any(folder.glob(_WEIGHTS)):
            raise BadInput(f"{found.uri} has no weights in safetensors", "save the model again (save_pretrained writes them)")
        if found.origin is not None:
            _rewrite(folder / _ADAPTER, _adapter_config((folder / _ADAPTER).read_text(), found, known))
        card = (folder / CARD).read_text() if (folder / CARD).exists() else ""
        _rewrite(folder / CARD, card_for_others(card, is_adapter=found.origin is not None, base=known))
        yield Parcel(folder, known, tuple(left))


def _has_code(source: Path) -> bool:
    """Whether the model is loaded by code beside it (`trust_remote_code`). Other scripts in its folder are nobody's business."""
    configs = [source / name for name in ("config.json", "tokenizer_config.json")]
    return any("auto_map" in json.loads(config.read_text()) for config in configs if config.is_file())


def _leaves(name: str) -> bool:
    if "/" in name:
        return fnmatch(name, _MORE_TEMPLATES)
    return any(fnmatch(name, pattern) for pattern in _LEAVE)


def _base_for_others(found: FoundModel, base: str | None) -> str | None:
    if base is not None and not is_hub_id(base):
        raise BadInput(f"--base {base} is no name on the Hugging Face hub", "write --base owner/name")
    if found.origin is None:
        return base
    if found.origin.from_scratch:
        raise BadInput(
            f"the adapter {found.uri} was trained on random weights (model.init: scratch), which were not kept",
            "no one can load it: train a whole model (method: full)",
        )
    known = base or found.origin.base
    if not known or not is_hub_id(known):
        named = f"belongs to {known}, which is on this machine: others cannot load it" if known else "does not name its base model"
        raise BadInput(
            f"the adapter {found.uri} {named}",
            "push the merged model (tuneyard merge RUN --out FOLDER, then tuneyard push FOLDER …), or name the base on the hub: "
            "--base owner/name",
        )
    return known


def _adapter_config(text: str, found: FoundModel, base: str | None) -> str:
    config: dict[str, Any] = json.loads(text)
    if found.origin is not None and base != found.origin.base:
        config["revision"] = None  # of another base
    return json.dumps({**config, "base_model_name_or_path": base}, indent=2, sort_keys=True) + "\n"


def card_for_others(card: str, *, is_adapter: bool, base: str | None) -> str:
    """A model card without local paths, with the base model in its front matter only where it is a name on the hub. Raises BadInput for a
    front matter that is not YAML.
    """
    found = _FRONT.match(card)
    try:
        data = yaml.safe_load(found[1]) if found else {}
    except yaml.YAMLError as error:
        raise BadInput(f"the front matter of {CARD} is not YAML: {said_by(error)}", f"mend {CARD} of the model") from error
    if not isinstance(data, dict):
        raise BadInput(f"the front matter of {CARD} is no mapping", f"mend {CARD} of the model")
    data = {"library_name": "peft" if is_adapter else "transformers", "tags": ["tuneyard"], **data}
    named = data.get("base_model")
    bases = [base] if base is not None else [each for each in (named if isinstance(named, list) else [named]) if each and is_hub_id(each)]
    for field in ("base_model", "base_model_relation"):
        data.pop(field, None)
    if bases:
        data["base_model"] = bases[0] if len(bases) == 1 else bases
        data["base_model_relation"] = "adapter" if is_adapter else "finetune"
    body = card[found.end() :] if found else card
    return f"---\n{yaml.safe_dump(data, sort_keys=False, allow_unicode=True)}---\n{without_paths(body)}"


def _rewrite(path: Path, text: str) -> None:
    """Write a file of the parcel in place of the link to the model's own."""
    path.unlink(missing_ok=True)
    path.write_text(text)
