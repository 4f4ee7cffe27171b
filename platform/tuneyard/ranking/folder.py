"""The folder of a ranker, read without torch: whether it holds a ranker, and its config."""

from __future__ import annotations

import json
from pathlib import Path

from tuneyard.api import BadInput
from tuneyard.api.local_files import hub_name, looks_like_path
from tuneyard.ranking.config import RankerConfig
from tuneyard.storage import NotFound, is_local, local_path, open_store

CONFIG, WEIGHTS = "ranker.json", "model.safetensors"
_PLAIN, _TRANSFORMING, _SUMMING = 2, 3, 4
"""Versions of `ranker.json`: of rankers without transforms, with them, and with ensembles other than concatenation. A reader refuses what
it does not support.
"""


def version_of(config: RankerConfig) -> int:
    """The lowest version whose readers score this ranker correctly."""
    if any(layer.ensemble != "concatenation" for layer in config.layers):
        return _SUMMING
    return _TRANSFORMING if config.transforms.steps else _PLAIN


def holds_ranker(uri: str) -> bool:
    """Whether a model is a ranker: a folder or URI with `ranker.json`. A name on the Hugging Face hub is none, and is not looked up."""
    if is_local(uri) and local_path(uri).exists():
        return (local_path(uri) / CONFIG).is_file()
    return looks_like_path(uri) and not is_local(uri) and hub_name(uri) == uri and open_store(uri).exists(CONFIG)


def read_config(uri: str | Path) -> RankerConfig:
    """The config of the ranker at a folder or URI. Raises BadInput if there is none, or one of another version."""
    try:
        values = json.loads(open_store(str(uri)).get(CONFIG))
    except (NotFound, ValueError, RecursionError) as error:
        raise BadInput(f"{uri} holds no ranker: {error}", f"name a folder with {CONFIG} and {WEIGHTS}") from error
    if not isinstance(values, dict):
        raise BadInput(f"{uri}/{CONFIG} is no ranker's config", f"name a folder with {CONFIG} and {WEIGHTS}")
    version = values.pop("version", None)
    if version not in (_PLAIN, _TRANSFORMING, _SUMMING):
        raise BadInput(f"{uri}/{CONFIG} is of another version", "load it with the version of Tuneyard that wrote it")
    config = RankerConfig.from_dict(values)
    if version_of(config) != version:
        raise BadInput(f"{uri}/{CONFIG} has lost its transforms or ensembles, or got some", "take the folder as training has saved it")
    return config
