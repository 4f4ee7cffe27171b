"""The error for a task without a plan that fits, with the smallest change that fits.

Each proposal is a set of fields, and resets the fields that conflict with it. It is reported only if the rules about combinations allow it
and the search finds a plan that fits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from tuneyard.api import BadInput
from tuneyard.catalog import has_fused_loss
from tuneyard.planning import tensor
from tuneyard.planning.change import WORKERS, Change, Fields, Question, change
from tuneyard.planning.context import degrees

_OPEN: Fields = {"strategy.zero": "auto", "strategy.recompute": "auto", "batch.micro": "auto"}
"""Settings that the planner usually decides best."""
_OVER_ALL: Fields = {"strategy.shardWithin": "none", "strategy.quantisedAllReduce": "none"}
_WHOLE_MATRICES: Fields = {"strategy.tensorParallel": 1, "strategy.sequenceParallel": False}
_WHOLE_ROWS: Fields = {"strategy.contextParallel": 1}
_PURPOSES = {
    "rows": "split rows over {} workers",
    "states": "keep optimizer states in 16 bits",
    "offload": "offload the optimizer",
    "lora": "train an adapter",
    "qlora": "train an adapter on 4-bit weights",
}
_Proposal = tuple[str, Fields]
"""Purpose and fields."""


def refusal(question: Question) -> BadInput:
    """The error for a question without a fitting plan: the memory of the smallest layout, term by term, and the smallest change that
    fits.
    """
    search = question.search()
    estimate = search.estimate(search.smallest())
    memory = estimate.device
    terms = ", ".join(
        f"{name} {value:.1f}"
        for name, value in (
            ("weights", memory.weights_gb),
            ("gradients", memory.gradients_gb),
            ("optimizer", memory.optimizer_gb),
            ("optimizer step", memory.optimizer_step_gb),
            ("activations", memory.activations_gb),
            ("libraries", memory.libraries_gb),
            ("other", memory.other_gb),
        )
        if name not in ("optimizer step", "libraries") or value
    )
    host = f", and {estimate.host_gb:.1f} GB of host memory" if estimate.host_gb else ""
    where = f"{search.workers} x {search.gpu.sku}"
    found = next((each for each in changes(question) if each.asked.fits()), None)
    shorter = ", a shorter maxLength, or" if memory.activations_gb else " or"
    return BadInput(
        f"does not fit on {where}: a rank takes {memory.total_gb:.1f} GB ({terms}){host}; usable are {search.usable_gb:.1f} GB",
        found.words if found is not None else f"use a GPU with more memory than {search.gpu.sku}{shorter} a smaller model",
    )


def changes(question: Question) -> Iterator[Change]:
    """Changes that may save memory, from the smallest to the largest, each once. Some of them are not allowed, or do not fit."""
    seen: list[Fields] = []
    nearest, farther = (
        (change(question, fields, purpose) for purpose, fields in proposals) for proposals in (_nearest(question), _farther(question))
    )
    for found in chain(nearest, _fused_loss(question), farther):
        if found is not None and found.fields not in seen:
            seen.append(found.fields)
            yield found


def _fused_loss(question: Question) -> Iterator[Change]:
    """Liger's fused loss, if Liger is not installed. The search uses it wherever the layout allows it."""
    asked, fused = question.task.layout.liger, has_fused_loss(question.shape.model_type)
    if asked == "auto" and fused and not question.site.get("liger_available", False) and not question.gpu.is_cpu:
        site = question.site.copy()
        site["liger_available"] = True
        words = "install liger-kernel, whose fused loss keeps no logits"
        yield Change(purpose=words, fields={}, asked=replace(question, site=site))


def _nearest(question: Question) -> Iterator[_Proposal]:
    """Settings that do not change the result of the task."""
    yield "", {"batch.micro": "auto"}
    if question.task.layout.recompute is False:
        yield "", {"strategy.recompute": True}


def _farther(question: Question) -> Iterator[_Proposal]:
    task, on_gpu = question.task, not question.gpu.is_cpu
    yield "", {"strategy.zero": "auto"}
    yield from _more_shards(question)
    yield "", _OPEN
    if task.layout.tensor_parallel > 1:
        yield from _with_open("", {"strategy.sequenceParallel": True})
    yield from _split_rows(question)
    yield from _cut_matrices(question)
    if on_gpu and task.optimizer.name == "adamw":
        yield from _with_open(_PURPOSES["states"], {"optimizer.states": "bf16"})
        yield from _offloaded(question)
    if task.method.name == "full":
        yield from _with_open(_PURPOSES["lora"], {"method": {"lora": {}}})
    if on_gpu and task.method.name in ("full", "lora"):
        whole: Fields = {**_OVER_ALL, **_WHOLE_MATRICES, "strategy.offload.parameters": "none"}
        yield from _with_open(_PURPOSES["qlora"], {"method": {"qlora": {}}, **whole})
    if on_gpu:
        yield from _more_workers(question)


def _with_open(purpose: str, fields: Fields) -> Iterator[_Proposal]:
    """The fields alone, then with the file's fixed settings reset to `auto`."""
    yield purpose, fields
    yield purpose, {**fields, **{name: value for name, value in _OPEN.items() if name not in fields}}


def _more_shards(question: Question) -> Iterator[_Proposal]:
    """Weights and states over all ranks, if they are unsharded or sharded inside hosts."""
    asked = question.task.layout
    if asked.shard_within == "none" and asked.quantised_all_reduce != "none":
        yield from _with_open("", {"strategy.zero": "auto", "strategy.shardWithin": "host"})
    if asked.shard_within == "host":
        yield from _with_open("", {"strategy.shardWithin": "none"})
    yield from _with_open("", _OVER_ALL)


def _split_rows(question: Question) -> Iterator[_Proposal]:
    """Rows split over the workers, or over more workers where there is one. Only where nothing but activations is too large."""
    if not _activations_alone_are_too_large(question):
        return
    asked = question.task.layout.context_parallel
    for degree in degrees(question.shape, question.workers):
        if degree > asked:
            yield from _with_open(_PURPOSES["rows"].format(degree), _split(question, degree))
    if question.workers == 1 and not question.gpu.is_cpu:
        for degree in degrees(question.shape, 8):
            yield from _with_open(_PURPOSES["rows"].format(degree), {**_split(question, degree), WORKERS: degree})


def _activations_alone_are_too_large(question: Question) -> bool:
    """Whether a rank can hold everything else, with weights and states sharded over all ranks."""
    open_question = question.changed(question.differing({**_OPEN, **_WHOLE_MATRICES, **_OVER_ALL}))
    if not open_question.is_allowed():
        return False
    search = open_question.search()
    memory = search.estimate(search.smallest()).device
    return memory.total_gb - memory.activations_gb <= search.usable_gb


def _split(question: Question, degree: int) -> Fields:
    """Fields that split rows: ranks then hold whole matrices, compute attention with sdpa, and have no fused loss."""
    task = question.task
    liger: Fields = {"strategy.liger": "auto"} if task.layout.liger is True else {}
    attention: Fields = {"model.attention": "auto"} if task.model.attention not in ("auto", "sdpa") else {}
    return {"strategy.contextParallel": degree, **_WHOLE_MATRICES, **_OVER_ALL, **liger, **attention}


def _cut_matrices(question: Question) -> Iterator[_Proposal]:
    """Matrices over the GPUs of a machine, if the task leaves that open."""
    released: Fields = {**_WHOLE_ROWS, **_OVER_ALL}
    if question.task.layout.liger is True:
        released = {**released, "strategy.liger": "auto"}
    free = question.changed(question.differing({**_OPEN, **released})).task
    for degree in tensor.degrees(free, question.shape, question.workers, question.site.get("gpus_per_node", 8)):
        if degree > question.task.layout.tensor_parallel:
            cut: Fields = {"strategy.tensorParallel": degree, **released}
            yield from _with_open("", cut)
            yield from _with_open("", {**cut, "strategy.sequenceParallel": True})


def _offloaded(question: Question) -> Iterator[_Proposal]:
    zero = 2 if question.task.method.qlora or question.workers == 1 else 3
    moved: Fields = {"strategy.zero": zero, "strategy.offload.optimizer": "cpu"}
    released: Fields = {**_OVER_ALL, **_WHOLE_MATRICES, "optimizer.states": "fp32"}
    yield from _with_open(_PURPOSES["offload"], {**moved, **released})


def _more_workers(question: Question) -> Iterator[_Proposal]:
    degree = question.task.layout.context_parallel
    for factor in (2, 4, 8, 16):
        yield from _with_open("", {WORKERS: question.workers * factor})
    for factor in (2, 4, 8) if degree > 1 else ():
        yield from _with_open("", {WORKERS: question.workers * factor, "strategy.contextParallel": degree * factor})
