"""The folders of a model that `find_model` has found, on this machine and whole, for commands that load it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tuneyard.api.pointers import refuse_pointers
from tuneyard.catalog.adapter_files import check_adapter_files
from tuneyard.catalog.weight_files import check_weight_files
from tuneyard.scoring.model_folder import model_folder
from tuneyard.storage import fetch_folder
from tuneyard.training.model_finder import FoundModel


@dataclass(frozen=True)
class ModelFolders:
    """Folders of weights, and of the adapter for them, if any."""

    model: Path
    adapter: Path | None


def folders_of(found: FoundModel, cache: Path) -> ModelFolders:
    """Fetch what is not on this machine into `cache`. Raises BadInput where weights or adapter are missing or damaged."""
    model = model_folder(found.model_uri, cache, found.revision)
    refuse_pointers(model)
    check_weight_files(model)
    if found.adapter_uri is None:
        return ModelFolders(model, None)
    adapter = fetch_folder(found.adapter_uri, cache)
    check_adapter_files(adapter, model)
    return ModelFolders(model, adapter)


def base_folder_of(found: FoundModel, cache: Path) -> Path | None:
    """The folder of the model that whole weights were trained from, fetched where needed; None where that is not known."""
    if found.base_uri is None:
        return None
    return folders_of(FoundModel(found.name, found.base_uri, revision=found.base_revision), cache).model
