"""A program's predictions for the held-out rows: `predictions.jsonl` in the task's output, one line per row, in their order."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tuneyard.api import BadInput
from tuneyard.storage import open_store
from tuneyard.training.distributed import World, gather_objects
from tuneyard.training.order import evaluation_batches
from tuneyard.training.program.loading import Loaded
from tuneyard.training.program.trainer import ProgramTrainer
from tuneyard.training.request import TrainRequest

FILE = "predictions.jsonl"


def write_predictions(trainer: ProgramTrainer, loaded: Loaded, request: TrainRequest, world: World) -> str:
    """Predict all held-out rows, on all ranks, and write them on one. Collective. Returns the URI of the file.

    Raises BadInput for predictions that are not one dict per row, or that JSON cannot hold.
    """
    rows = trainer.eval_dataset
    batches = evaluation_batches(len(rows), request.plan.micro_batch, world.data_rank, world.mesh.data)
    model = trainer.model_wrapped
    model.eval()
    own: list[tuple[int, str]] = []
    for numbers in batches:
        batch = trainer.data_collator(rows.__getitems__(numbers or [0]))
        given = trainer._prepare_inputs({name: value for name, value in batch.items() if torch.is_tensor(value)})
        with torch.no_grad(), trainer.compute_loss_context_manager():
            predicted = model(given, predicting=True)
        own += _lines(predicted, numbers, loaded) if numbers and world.tensor_index == 0 else []
    model.train()
    lines = sorted(line for lines in gather_objects(world, own) for line in lines)
    store = open_store(request.output)
    if world.is_first:
        store.put(FILE, "".join(line + "\n" for _, line in lines).encode())
    return store.url(FILE)


def _lines(predicted: Any, numbers: Sequence[int], loaded: Loaded) -> list[tuple[int, str]]:
    if not isinstance(predicted, list) or not all(isinstance(each, Mapping) for each in predicted):
        raise BadInput(
            f"predict of {loaded.name} returned {type(predicted).__name__}, and not a list of dicts", "return a dict for each row"
        )
    if len(predicted) != len(numbers):
        raise BadInput(
            f"predict of {loaded.name} returned {len(predicted)} predictions for {len(numbers)} rows",
            "return a dict for each row, in order",
        )
    try:
        return [(number, json.dumps({"row": number, **each})) for number, each in zip(numbers, predicted, strict=True)]
    except (TypeError, ValueError) as error:
        raise BadInput(
            f"predict of {loaded.name} returned a value that JSON cannot hold: {error}",
            "return numbers, texts and lists: tensor.tolist(), float(x)",
        ) from error
