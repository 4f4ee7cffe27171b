"""The folder of a model on this machine: fetched from its store, or from the Hugging Face hub."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

from tuneyard.api import BadInput
from tuneyard.api.errors import said_by
from tuneyard.api.local_files import looks_like_path
from tuneyard.storage import NotFound, fetch_folder, is_local, local_path, open_store
from tuneyard.storage.near import near_folder

_FILES = ["*.json", "*.safetensors", "*.bin", "*.model", "*.txt", "*.jinja", "*.py", "*.tiktoken"]
"""Weights and tokenizers of transformers; not those of other frameworks (ONNX, OpenVINO, TensorFlow), which many repositories hold too."""
_WEIGHTS = ["*.safetensors", "*.bin"]
_OTHER = ["onnx/*", "openvino/*", "original/*", "rust_model.ot", "tf_model.h5"]


def small_files_of(name: str, cache: Path, revision: str | None = None) -> Path:
    """As `model_folder`, without weights: the configuration and the tokenizer."""
    if looks_like_path(name) or (is_local(name) and local_path(name).exists()):
        return local_path(name) if is_local(name) else _fetched(name, cache)
    return _of_hub(name, revision, [each for each in _FILES if each not in _WEIGHTS])


def _fetched(uri: str, cache: Path) -> Path:
    store = open_store(uri)
    small = [file.path for file in store.list() if "/" not in file.path and not any(fnmatch(file.path, each) for each in _WEIGHTS)]
    if "config.json" not in small:
        raise NotFound(f"no model is stored at {uri}", "check the path; a model is a folder with config.json")
    cache.mkdir(parents=True, exist_ok=True)
    for path in small:
        (cache / path).write_bytes(store.get(path))
    return cache


def model_folder(name: str, cache: Path, revision: str | None = None) -> Path:
    """A local folder with the model at a path, a URI, or a Hugging Face name.

    Raises BadInput for a name that the hub does not have, NotFound where nothing is stored at a URI.
    """
    if looks_like_path(name) or (is_local(name) and local_path(name).exists()):
        return fetch_folder(name, cache)
    return _of_hub(name, revision, _FILES)


def _of_hub(name: str, revision: str | None, files: list[str]) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=files, ignore_patterns=_OTHER))
    except Exception as error:
        near = near_folder(Path(name))
        raise BadInput(
            f"there is no folder {name}, and the Hugging Face hub gives no model {name}: {type(error).__name__}: {said_by(error)}",
            (f"did you mean the folder {near}? If not, " if near else "")
            + "check the path; of a model of the hub, check its name and the network: a private or gated model needs HF_TOKEN",
        ) from error
