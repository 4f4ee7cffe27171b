"""The model of a program: made by its own `model`, loaded from the folder that the task names, or both."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, set_seed

from tuneyard.api import BadInput
from tuneyard.api.local_files import looks_like_path
from tuneyard.training.distributed import World
from tuneyard.training.models import DTYPES, fetched
from tuneyard.training.program.blame import blamed
from tuneyard.training.program.loading import Loaded
from tuneyard.training.request import TrainRequest

ABOUT = "program.json"
"""File beside weights that a program has trained: the program, and how to load them."""
WEIGHTS = "model.safetensors"


def find_program_start(request: TrainRequest, loaded: Loaded, world: World) -> str:
    """A local folder or Hugging Face name to start from; empty if the program makes its model from nothing. One rank of each machine
    fetches. Raises BadInput if neither the program nor the task has a model.
    """
    uri = request.model_uri
    if not uri:
        if not loaded.makes_model:
            raise BadInput(
                f"{loaded.name} has no function model, and the task names no model",
                "have model() return a torch module; or name a model in train.model, which is loaded by transformers",
            )
        return ""
    if "://" not in uri and not Path(uri).expanduser().exists():
        if looks_like_path(uri):
            raise BadInput(f"there is no folder {uri}", "check model.name: a Hugging Face name, a folder, or a URI of a model folder")
        return uri
    return fetched(uri, Path(request.scratch) / "start" / "model", world)


def made_by_program(request: TrainRequest, loaded: Loaded, start: str) -> nn.Module | None:
    """The model of the program's `model`, whole and on cpu; None if the program has no `model`.

    Must be called before TrainingArguments exist: under ZeRO-3 transformers would cut weights during their creation, and torch's own
    initialisation would have no effect. Weights of the same program (`model: {from: TASK}`) are loaded into the model.
    """
    if not loaded.makes_model:
        return None
    trained = bool(start) and (Path(start) / ABOUT).is_file()
    make = loaded.program.model
    with blamed(f"model of {loaded.name}", loaded.folder):
        wants_start = bool(inspect.signature(make).parameters)
    if start and not trained and not wants_start:
        raise BadInput(
            f"the task names a model, and model of {loaded.name} takes none",
            "write it as model(self, start), with the folder; or leave train.model out",
        )
    set_seed(request.task.seed)
    with blamed(f"model of {loaded.name}", loaded.folder):
        model = make(start or None) if wants_start else make()
    if not isinstance(model, nn.Module):
        raise BadInput(f"model of {loaded.name} returned {type(model).__name__}, and not a torch module", "return an nn.Module")
    if next(model.parameters(), None) is None:
        raise BadInput(f"the model of {loaded.name} has no parameters", "return the module that is to be trained")
    if trained:
        _load_trained(model, Path(start), loaded)
    return model.float() if request.plan.zero == 0 else model


def loaded_by_transformers(request: TrainRequest, loaded: Loaded, start: str) -> nn.Module:
    """The model of a folder, by the class in its config.json. With ZeRO-3, TrainingArguments must exist: weights are cut during loading.
    Raises BadInput.
    """
    import transformers

    model = request.task.model
    options: dict[str, Any] = {"revision": model.revision, "trust_remote_code": model.trust_remote_code}
    if (Path(start) / ABOUT).is_file():
        raise BadInput(
            f"{request.model_uri} was trained by a program, and {loaded.name} has no model()", "name the program that has made it"
        )
    try:
        name = (AutoConfig.from_pretrained(start, **options).architectures or [""])[0]
        kind = getattr(transformers, name, None) or transformers.AutoModel
        dtype = torch.float32 if request.plan.zero == 0 else DTYPES[request.plan.precision]
        found: nn.Module = kind.from_pretrained(start, dtype=dtype, **options)
    except (OSError, ValueError, ImportError) as error:
        raise BadInput(
            f"{request.model_uri} cannot be loaded by transformers: {' '.join(str(error).split())[:300]}",
            f"give {loaded.name} a function model(self, start) that loads it, or name a folder with config.json and weights",
        ) from error
    return found


def _load_trained(model: nn.Module, folder: Path, loaded: Loaded) -> None:
    from safetensors.torch import load_file

    about = json.loads((folder / ABOUT).read_text())
    weights = load_file(folder / WEIGHTS)
    own = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    shared = about.get("shared", {})
    weights |= {name: weights[source] for name, source in shared.items() if source in weights}
    theirs = {name: tuple(value.shape) for name, value in weights.items()}
    if own != theirs:
        differing = sorted(name for name in {*own, *theirs} if own.get(name) != theirs.get(name))
        raise BadInput(
            f"the weights were trained by {about.get('program')}, and model of {loaded.name} makes others: {', '.join(differing[:3])}",
            "name the program that has trained them, or leave train.model out",
        )
    model.load_state_dict(weights)
