"""Artifacts of a program: weights as safetensors with the names of its own model, its source, and `program.json` about loading them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tuneyard.storage import open_store
from tuneyard.training.artifacts import MODEL, Artifacts, gathered_weights
from tuneyard.training.distributed import World
from tuneyard.training.first_rank import write_on_first
from tuneyard.training.models import DTYPES
from tuneyard.training.program.adapter import merged
from tuneyard.training.program.loading import Loaded
from tuneyard.training.program.module import MODEL_PREFIX
from tuneyard.training.program.start import ABOUT, WEIGHTS
from tuneyard.training.program.trainer import ProgramTrainer
from tuneyard.training.request import TrainRequest

SOURCE = "program"
FORMAT = 1


def save_program_artifacts(trainer: ProgramTrainer, loaded: Loaded, request: TrainRequest, world: World, card: str) -> Artifacts:
    """Write the final model below the task's output. Collective: with ZeRO-3, all ranks gather the weights. Raises StorageError on every
    rank if rank 0 could not write.
    """
    weights = gathered_weights(trainer, request, frozen=True)
    write_on_first(world, lambda: _write(trainer, loaded, request, weights, card), what="the final model")
    return Artifacts(open_store(request.output).url(MODEL), None, None)


def _write(trainer: ProgramTrainer, loaded: Loaded, request: TrainRequest, gathered: dict[str, torch.Tensor] | None, card: str) -> None:
    folder = Path(request.scratch) / "final" / MODEL
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model = trainer.module.model
    own = merged(model, gathered if gathered is not None else trainer.module.state_dict(), MODEL_PREFIX)
    dtype = DTYPES[request.plan.precision]
    weights: dict[str, torch.Tensor] = {}
    shared: dict[str, str] = {}
    places: dict[Any, str] = {}
    for name, value in own.items():
        place = (value.data_ptr(), tuple(value.shape), value.stride()) if value.numel() else name
        if place in places:  # tied weights: stored once, under their first name
            shared[name] = places[place]
            continue
        places[place] = name
        value = value.detach().to("cpu")
        weights[name] = (value.to(dtype) if value.is_floating_point() else value).contiguous().clone()
    save_file(weights, folder / WEIGHTS, {"format": "pt"})
    (folder / ABOUT).write_text(json.dumps(_about(loaded, request, shared), indent=1) + "\n")
    (folder / "README.md").write_text(card)
    write_source(loaded, folder / SOURCE)
    if hasattr(getattr(model, "config", None), "save_pretrained"):
        model.config.save_pretrained(folder)
    open_store(request.output).commit_folder(folder, MODEL)


def _about(loaded: Loaded, request: TrainRequest, shared: dict[str, str]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "program": loaded.name,
        "source": SOURCE if loaded.files else None,
        "model_from": request.model_uri or None,
        "shared": shared,
        "precision": request.plan.precision,
        "seed": request.task.seed,
    }


def write_source(loaded: Loaded, folder: Path) -> None:
    """Copy the module and its imports beside it; nothing for an installed module."""
    for file in loaded.files:
        target = folder / file.resolve().relative_to(loaded.folder.resolve())
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
