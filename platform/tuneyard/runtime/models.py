"""Reads the configuration of a model before anything is loaded: enough to refuse a folder without a model, and to plan."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput
from tuneyard.api.local_files import looks_like_path
from tuneyard.api.pointers import refuse_pointers
from tuneyard.catalog import ModelShape, known_config, shape_from_config
from tuneyard.catalog.adapter_files import check_adapter_files
from tuneyard.catalog.built import model_shape_of
from tuneyard.data.prompt_form import TEMPLATE_KEY
from tuneyard.storage import NotFound, is_local, local_path, open_store
from tuneyard.storage.marks import changed_marks, model_marks
from tuneyard.training.origin import Origin, origin_of

CONFIG, TOKENIZER_CONFIG = "config.json", "tokenizer_config.json"
ADAPTER = "adapter_config.json"


def base_of_adapter(uri: str) -> Origin | None:
    """The base of the adapter in a folder, or at a URI; None: a whole model, or none at all. Raises BadInput where the base is not known,
    or was not kept.
    """
    if not looks_like_path(uri) and not (is_local(uri) and local_path(uri).exists()):
        return None  # a Hugging Face name
    if is_local(uri) and not local_path(uri).is_dir():
        return None
    store = open_store(uri)
    if store.exists(CONFIG) or not store.exists(ADAPTER):
        return None
    try:
        origin = origin_of(store)
    except ValueError as error:
        raise BadInput(f"{ADAPTER} of {uri} is not JSON: {error}", "save the adapter again") from error
    if not origin.base or origin.from_scratch:
        why = "was trained on random weights, which were not kept" if origin.from_scratch else "does not name its base model"
        raise BadInput(f"the adapter {uri} {why}", "merge it with its base first: tuneyard merge --base MODEL")
    folder = local_path(origin.base) if is_local(origin.base) and looks_like_path(origin.base) else None
    if folder is not None:
        _check_base(uri, origin)
    if is_local(uri):
        check_adapter_files(local_path(uri), folder, finite=False)
    return origin


def saved_prompt_template(uri: str) -> str | None:
    """The template of prompts that a model of ours was trained with; None: it had none, or is no folder or URI."""
    if not looks_like_path(uri) and not (is_local(uri) and local_path(uri).is_dir()):
        return None
    try:
        return json.loads(open_store(uri).get(TOKENIZER_CONFIG)).get(TEMPLATE_KEY) or None
    except (NotFound, ValueError, AttributeError):  # loading the tokenizer says what is wrong with it
        return None


def _check_base(adapter: str, origin: Origin) -> None:
    """Raises BadInput where the base of an adapter, a local folder, is not there, has changed, or is an adapter itself."""
    folder, copy = local_path(origin.base), "or merge the adapter with a copy of it: tuneyard merge --base MODEL"
    if not folder.is_dir():
        raise BadInput(f"the adapter {adapter} was trained on {origin.base}, and there is no such folder", f"restore it there, {copy}")
    if not (folder / CONFIG).is_file() and (folder / ADAPTER).is_file():
        advice = f"merge that one first (tuneyard merge {folder}), and this one with the merged model (tuneyard merge --base)"
        raise BadInput(f"the base of the adapter {adapter} is an adapter itself: {folder}", advice)
    changed = changed_marks(origin.marks, model_marks(folder)) if origin.marks else []
    if changed:
        cause = f"{origin.base} has changed since the adapter {adapter} was trained on it: {', '.join(changed[:3])}"
        raise BadInput(cause, f"restore it, {copy}")


def model_shape(uri: str, revision: str | None = None) -> ModelShape:
    """Shape of the model at a folder, URI or Hugging Face name. Raises BadInput if there is no model."""
    known = known_shape(uri, revision)
    return known if known is not None else model_shape_of(read_config(uri, revision))


def known_shape(uri: str, revision: str | None = None) -> ModelShape | None:
    """The shape of a Hugging Face model in the catalog; None for any other model, and for a named revision."""
    if revision is not None or looks_like_path(uri) or (is_local(uri) and local_path(uri).exists()):
        return None
    config = known_config(uri)
    return shape_from_config(config) if config is not None else None


def read_config(uri: str, revision: str | None = None) -> dict[str, Any]:
    """config.json of a model, from its folder, its store, or the Hugging Face hub (or its cache); of an adapter that of its base. Raises
    BadInput.
    """
    if (origin := base_of_adapter(uri)) is not None:
        return read_config(origin.base, origin.revision)
    if is_local(uri) and local_path(uri).exists():
        text = _of_folder(local_path(uri))
    elif looks_like_path(uri):
        text = _of_store(uri)
    else:
        text = _of_hub(uri, revision)
    try:
        config = json.loads(text)
    except ValueError as error:
        raise BadInput(f"{CONFIG} of the model {uri} is not JSON: {error}", "save the model again (save_pretrained)") from error
    if not isinstance(config, dict):
        raise BadInput(f"{CONFIG} of the model {uri} is not an object", "save the model again (save_pretrained)")
    return config


def _of_folder(folder: Path) -> str:
    if not (folder / CONFIG).is_file():
        raise BadInput(
            f"{folder} is not a model: it has no {CONFIG}", "point model.name at a folder with config.json, weights and tokenizer"
        )
    refuse_pointers(folder)
    return (folder / CONFIG).read_text()


def _of_store(uri: str) -> str:
    if is_local(uri):
        raise BadInput(f"there is no model folder {uri}", "check model.name: paths start at the JobSpec's folder")
    try:
        return open_store(uri).get(CONFIG).decode()
    except NotFound as error:
        raise BadInput(
            f"{uri} is not a model: it has no {CONFIG}", "point model.name at a folder with config.json, weights and tokenizer"
        ) from error


def _of_hub(name: str, revision: str | None) -> str:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    # The errors below report a failure once; the client itself would log it before each of five tries.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        return Path(hf_hub_download(name, CONFIG, revision=revision)).read_text()
    except GatedRepoError as error:
        raise BadInput(f"the model {name} is gated", "accept its terms on huggingface.co, and set HF_TOKEN in the job's env") from error
    except (RepositoryNotFoundError, RevisionNotFoundError, HFValidationError) as error:
        raise BadInput(
            f"there is no folder and no Hugging Face model {name}" + (f" at revision {revision}" if revision else ""),
            "check model.name; a private model needs HF_TOKEN in the job's env",
        ) from error
    except (LocalEntryNotFoundError, OSError) as error:  # the first is an EntryNotFoundError too: not in the cache, and no network
        raise BadInput(
            f"there is no folder {name}, and the Hugging Face hub cannot be reached ({type(error).__name__})",
            "check the network; or download the model elsewhere and give its folder",
        ) from error
    except EntryNotFoundError as error:
        raise BadInput(f"{name} is not a model: it has no {CONFIG}", "check model.name") from error
