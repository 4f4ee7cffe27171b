"""What all later steps of an attempt work on: the model's folder, its tokenizer, prepared data, and the batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from tuneyard import data
from tuneyard.planning import steps_of_epochs
from tuneyard.tracking.events import Emit, Stage
from tuneyard.training.distributed import World
from tuneyard.training.models import find_start, load_dtype, load_tokenizer
from tuneyard.training.offload_ops import prepare_offload
from tuneyard.training.order import Batches
from tuneyard.training.provenance.signing import given_key
from tuneyard.training.request import TrainRequest
from tuneyard.training.sample import show_sample
from tuneyard.training.tensor_plan import ProvenPlan, prove_on_first
from tuneyard.training.vocabulary import check_vocabulary
from tuneyard.training.ways import ways_of


@dataclass(frozen=True)
class Material:
    """Inputs of all later steps: the same on every rank."""

    start: str
    tokenizer: Any
    turn_end: int | None
    """The token that ends an answer, if samples were rendered with a chat template."""
    data: data.Prepared
    steps: int
    batches: Batches
    cut: ProvenPlan | None = None
    """The tensor-parallel plan of the model of `start`."""


def prepare_material(request: TrainRequest, world: World, resumed: Mapping[str, Any] | None, emit: Emit) -> Material:
    """Find the model, read its tokenizer and prepare the data of a language model. `resumed`: see `ways_of`. Raises BadInput."""
    task, plan = request.task, request.plan
    prepare_offload(plan, world, optimizer=task.optimizer.name, task=request.name, emit=emit)
    with given_key():  # a key that cannot sign is refused now, and not after training
        emit(Stage(task=request.name, name="loading the model"))
    start = find_start(request, world)
    tokenizer = load_tokenizer(request, start)
    check_vocabulary(tokenizer, request, start)
    cut = None
    if plan.tensor_parallel > 1:  # refused before data are prepared
        trust = task.model.trust_remote_code
        config = AutoConfig.from_pretrained(start, revision=task.model.revision, trust_remote_code=trust)
        cut = prove_on_first(config, plan, world, dtype=load_dtype(request), trust_remote_code=trust)
    service = Path(request.streams) if request.streams else None
    ways = ways_of(request, world, tokenizer, resumed)
    how: Any = {"objective": task.objective, "seed": task.seed, "service": service, "emit": emit, "task": request.name}
    prepared = data.prepare(task.data, tokenizer, steps=task.steps, ways=ways, **how)
    if prepared.chat_template is not None:
        tokenizer.chat_template = prepared.chat_template
    data.set_prompt_form(tokenizer, chats=prepared.chats, template=prepared.prompt_template)
    turn_end = data.turn_end(tokenizer) if prepared.chats else None
    show_sample(request, tokenizer, prepared, turn_end, emit)
    order = prepared.order
    steps = task.steps or steps_of_epochs(task.epochs or 1.0, order.epoch_rows, plan.global_batch)
    batches = Batches(
        rows_at=order.at_each,
        micro_batch=plan.micro_batch,
        grad_accum=plan.grad_accum,
        rank=world.data_rank,
        workers=world.mesh.data,
        start=0,
        stop=steps,
    )
    return Material(start, tokenizer, turn_end, prepared, steps, batches, cut)
