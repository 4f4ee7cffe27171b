"""Reads the configuration of a model before anything is loaded: enough to refuse a folder without a model, and to plan."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput
from tuneyard.api.pointers import refuse_pointers
from tuneyard.catalog import ModelShape, known_config, shape_from_config
from tuneyard.catalog.built import model_shape_of
from tuneyard.data.prompt_form import TEMPLATE_KEY
from tuneyard.storage import NotFound, is_local, local_path, open_store
from tuneyard.training.model_finder import CONFIG, FoundModel, find_model, is_name

TOKENIZER_CONFIG = "tokenizer_config.json"


def saved_prompt_template(uri: str) -> str | None:
    """The template of prompts that a model of ours was trained with; None: it had none, or is no folder or URI."""
    if is_name(uri):
        return None
    try:
        return json.loads(open_store(uri).get(TOKENIZER_CONFIG)).get(TEMPLATE_KEY) or None
    except (NotFound, ValueError, AttributeError):  # loading the tokenizer says what is wrong with it
        return None


def model_shape(uri: str, revision: str | None = None) -> ModelShape:
    """Shape of the model at a folder, URI or Hugging Face name. Raises BadInput if there is no model."""
    known = known_shape(uri, revision)
    return known if known is not None else model_shape_of(read_config(uri, revision))


def known_shape(uri: str, revision: str | None = None) -> ModelShape | None:
    """The shape of a Hugging Face model in the catalog; None for any other model, and for a named revision."""
    if revision is not None or not is_name(uri):
        return None
    config = known_config(uri)
    return shape_from_config(config) if config is not None else None


def read_config(given: str, revision: str | None = None) -> dict[str, Any]:
    """config.json of the model that is named; see `find_model` and `config_of`. Raises BadInput."""
    found = find_model(given)
    return config_of(replace(found, revision=found.revision or revision))


def config_of(found: FoundModel) -> dict[str, Any]:
    """config.json of a model, from its folder, its store, or the Hugging Face hub (or its cache); of an adapter that of its base. Raises
    BadInput.
    """
    uri = found.model_uri
    if is_name(uri):
        text = _of_hub(uri, found.revision)
    else:
        if is_local(uri):
            refuse_pointers(local_path(uri))
        text = open_store(uri).get(CONFIG).decode()
    try:
        config = json.loads(text)
    except ValueError as error:
        raise BadInput(f"{CONFIG} of the model {uri} is not JSON: {error}", "save the model again (save_pretrained)") from error
    if not isinstance(config, dict):
        raise BadInput(f"{CONFIG} of the model {uri} is not an object", "save the model again (save_pretrained)")
    return config


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
            "check model.name: the model of a run is named by its output; a private model needs HF_TOKEN in the job's env",
        ) from error
    except (LocalEntryNotFoundError, OSError) as error:  # the first is an EntryNotFoundError too: not in the cache, and no network
        raise BadInput(
            f"there is no folder {name}, and the Hugging Face hub cannot be reached ({type(error).__name__})",
            "check the network; or download the model elsewhere and give its folder",
        ) from error
    except EntryNotFoundError as error:
        raise BadInput(f"{name} is not a model: it has no {CONFIG}", "check model.name") from error
