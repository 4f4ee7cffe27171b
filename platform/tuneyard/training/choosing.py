"""Loads the model of a language model's task, and chooses the trainer for its objective."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput
from tuneyard.data.mapped_rows import by_batches
from tuneyard.parallel import Shards
from tuneyard.parallel.context import ContextParallel
from tuneyard.training.adapters import with_adapter
from tuneyard.training.arguments import training_arguments
from tuneyard.training.collate import Collator
from tuneyard.training.context import SliceCollator
from tuneyard.training.distributed import World
from tuneyard.training.expert_load import ExpertLoad
from tuneyard.training.material import Material
from tuneyard.training.models import adapter_source, load_model, vision_warning
from tuneyard.training.offload_disk import largest_on_disk
from tuneyard.training.pairs import PairCollator
from tuneyard.training.preference import PreferenceTrainer, without_dropout
from tuneyard.training.proofs.before import Before, prove_before
from tuneyard.training.proofs.first_pass import first_pass
from tuneyard.training.reference import load_reference
from tuneyard.training.request import TrainRequest
from tuneyard.training.router_loss import take_router_loss
from tuneyard.training.sharded_start import load_parts
from tuneyard.training.tensor_parallel import keep_logits, shard
from tuneyard.training.tensor_plan import tensor_plan
from tuneyard.training.token_mean import take_token_mean
from tuneyard.training.trainer import SteppedTrainer
from tuneyard.training.vocabulary import fit_embedding


@dataclass(frozen=True)
class Chosen:
    """The trainer, and what belongs to its model: `before` is the proof of the weights before the first step, `router_weight` that of the
    balancing loss of experts.
    """

    trainer: SteppedTrainer
    shards: Shards | None
    context: ContextParallel | None
    before: Before | None
    router_weight: float
    expert_load: ExpertLoad | None


def choose_trainer(request: TrainRequest, material: Material, world: World, warn: Callable[[str], None]) -> Chosen:
    """Load and prepare the model, and make the trainer of the task's objective. Raises BadInput for a model that cannot be trained so."""
    task, plan = request.task, request.plan
    largest = largest_on_disk(request, material.start, world)
    arguments = training_arguments(task, plan, steps=material.steps, scratch=Path(request.scratch), largest_parameter=largest)
    # A process is a rank. On a machine with several GPUs, transformers would spread a single rank over all of them (DataParallel).
    arguments._n_gpu = min(arguments.n_gpu, 1)
    parts = load_parts(request, material.start, material.tokenizer, world, material.cut)
    unplaced: list[str] = []
    model = load_model(request, material.start, world, unplaced.append) if parts is None else parts.model
    fit_embedding(model, material.tokenizer, request)
    if plan.recompute and not model.supports_gradient_checkpointing:
        raise BadInput(f"{type(model).__name__} cannot recompute its layers", "set strategy.recompute to false")
    cuts = tensor_plan(model, plan, material.cut) if parts is None else parts.plan
    unsaid = vision_warning(request, material.start, model)
    for message in [unsaid] if unsaid is not None else unplaced:
        warn(message)
    router_weight = take_router_loss(model, task.router_loss)
    expert_load = ExpertLoad.of(model)
    if task.objective == "dpo":
        without_dropout(model)
    adapter = adapter_source(request, world, material.start) if request.adapter_uri and task.method.adapter is not None else None
    model = with_adapter(model, request, adapter, warn)
    shards = shard(model, cuts, world) if parts is None else parts.shards
    before = None
    if task.proof == "full":
        with first_pass(model, plan):
            before = prove_before(model, material.data, request, world)
        for message in before.warnings:
            warn(message)
    rows, held_out = (by_batches(each) for each in (material.data.train, material.data.validation))
    context = None
    if plan.context_parallel > 1:
        context = ContextParallel(world.context_group)
        context.prepare(model)
    pad = material.tokenizer.pad_token_id
    if task.objective == "dpo":
        if cuts is not None and shards is not None:
            keep_logits(model, cuts, shards)
        reference = None
        if task.method.adapter is None:
            reference = load_reference(request, material.start, material.tokenizer, world, material.cut)
        trainer: SteppedTrainer = PreferenceTrainer(
            model=model,
            args=arguments,
            data_collator=PairCollator.of(task, plan, pad, context),
            train_dataset=rows,
            eval_dataset=held_out,
            loss=task.preference.loss,
            beta=task.preference.beta,
            reference=reference,
            context=context,
        )
    else:
        collator: Any = Collator.of(task, plan, pad)
        if context is not None:
            collator = SliceCollator(collator, context.index, context.ranks, collator.pad_token_id)
        trainer = SteppedTrainer(model=model, args=arguments, data_collator=collator, train_dataset=rows, eval_dataset=held_out)
        if not take_token_mean(trainer) and cuts is not None and shards is not None:
            keep_logits(model, cuts, shards)
    return Chosen(trainer, shards, context, before, router_weight, expert_load)
