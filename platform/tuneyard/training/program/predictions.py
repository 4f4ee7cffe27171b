"""A program's predictions for held-out rows, one line of JSON per row, in their order: `predictions.jsonl` at the end, and samples of each
evaluation in `predictions/`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from tuneyard.api import BadInput
from tuneyard.storage import Store, open_store
from tuneyard.training.distributed import gather_objects
from tuneyard.training.evaluation_rows import make_rows
from tuneyard.training.generators import kept_generators
from tuneyard.training.order import evaluation_batches
from tuneyard.training.program.even_calls import even_calls
from tuneyard.training.program.loading import Loaded
from tuneyard.training.request import TrainRequest

if TYPE_CHECKING:
    from tuneyard.training.program.trainer import ProgramTrainer

FILE = "predictions.jsonl"
FOLDER = "predictions"
_SAMPLES = re.compile(r"/step-(\d+)\.jsonl$")
MOST_FILES = 64
"""Files of samples that stay. Of more files, every second one is removed."""


def predict_rows(trainer: ProgramTrainer, numbers: Sequence[int]) -> list[str]:
    """Predictions for the held-out rows `numbers`, as lines of JSON in their order, on every rank. Collective. The random numbers of the
    next step stay what they were.

    Raises BadInput for predictions that are not one dict per row, or that JSON cannot hold.
    """
    world, model, rows = trainer.world, trainer.model_wrapped, trainer.eval_dataset
    batches = evaluation_batches(len(numbers), trainer.args.per_device_eval_batch_size, world.data_rank, world.mesh.data)
    model.eval()
    own: list[tuple[int, str]] = []
    with kept_generators():
        for places in batches:
            chosen = [numbers[place] for place in places]
            # A rank without rows left still takes part in the collectives of a forward pass.
            batch = trainer.data_collator(rows.__getitems__(chosen or [numbers[0]]))
            given = trainer._prepare_inputs({name: value for name, value in batch.items() if torch.is_tensor(value)})
            calls = even_calls(trainer.module.model, world, f"predict of {trainer.module.loaded.name}")
            with calls, torch.no_grad(), trainer.compute_loss_context_manager():
                predicted = model(given, "predict")
            own += _lines(predicted, chosen, trainer.module.loaded) if chosen and world.tensor_index == 0 else []
    model.train()
    return [line for _, line in sorted(line for lines in gather_objects(world, own) for line in lines)]


def write_predictions(trainer: ProgramTrainer, request: TrainRequest) -> str:
    """Predict all held-out rows, on all ranks, and write them on one. Collective. Returns the URI of the file."""
    make_rows(trainer.eval_dataset, trainer.world)
    lines = predict_rows(trainer, range(len(trainer.eval_dataset)))
    store = open_store(request.output)
    if trainer.world.is_first:
        store.put(FILE, _text(lines))
    return store.url(FILE)


def write_samples(store: Store, step: int, lines: Sequence[str]) -> None:
    """Write the predictions of an evaluation. A step that an attempt repeats replaces its file; files of later steps, which an attempt
    before has left, are removed.
    """
    store.put(f"{FOLDER}/step-{step}.jsonl", _text(lines))
    found = {int(match[1]): file.path for file in store.list(FOLDER) if (match := _SAMPLES.search(file.path))}
    steps = sorted(each for each in found if each <= step)
    thinned = steps[:-1][::2] if len(steps) > MOST_FILES else []
    for each in [*thinned, *(later for later in found if later > step)]:
        store.delete(found[each])


def spread(rows: int, count: int) -> list[int]:
    """`count` numbers of `rows` rows, or all of them, evenly spread."""
    chosen = min(rows, count)
    return [number * rows // chosen for number in range(chosen)]


def _text(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


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
