"""Whether the weights of a model folder are all there. Reads names and headers, and no weights.

Engines find out after half a minute of imports, and say it in a stack trace.
"""

from __future__ import annotations

import json
from pathlib import Path

from tuneyard.api import BadInput
from tuneyard.catalog.adapter_files import CONFIG as ADAPTER
from tuneyard.catalog.adapter_files import safetensors_header

_INDICES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_SETTINGS = ("config.json", "generation_config.json")
"""transformers takes usual settings in place of a damaged second one, without the tokens that end an answer."""
_WEIGHTS = ("*.safetensors", "*.bin")
_ADVICE = "copy or download the folder again"


def check_weight_files(folder: Path) -> None:
    """Raises BadInput where the folder of a model has no configuration or no weights, lacks some of their files, or holds one that was cut
    off."""
    if not (folder / "config.json").is_file():
        if (folder / ADAPTER).is_file():  # as the Hugging Face hub has them: a name is taken for a whole model before it is fetched
            raise BadInput(f"{folder} is an adapter, and no whole model", f"give this folder instead of the adapter's name: {folder}")
        raise BadInput(f"{folder} is not a whole model: it has no config.json", _ADVICE)
    for name in _SETTINGS:
        _refuse_damaged(folder / name)
    names = _names(folder)
    if missing := [name for name in names if not (folder / name).is_file()]:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise BadInput(f"{folder} is not a whole model: {missing[0]}{more} of {len(names)} files of weights is not there", _ADVICE)
    for name in names:
        if name.endswith(".safetensors"):
            safetensors_header(folder / name, _ADVICE)


def _refuse_damaged(file: Path) -> None:
    try:
        if file.is_file():
            json.loads(file.read_text())
    except ValueError as error:
        raise BadInput(f"{file} is damaged: {error}", _ADVICE) from error


def _names(folder: Path) -> list[str]:
    for index in _INDICES:
        if (folder / index).is_file():
            try:
                return sorted(set(json.loads((folder / index).read_text())["weight_map"].values()))
            except (ValueError, KeyError, AttributeError, TypeError) as error:
                raise BadInput(f"{folder / index} is damaged: {error}", _ADVICE) from error
    found = sorted(path.name for pattern in _WEIGHTS for path in folder.glob(pattern))
    if not found:
        raise BadInput(f"{folder} is not a whole model: it has no weights (*.safetensors or *.bin)", _ADVICE)
    return found
