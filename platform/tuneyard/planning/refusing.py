"""Why nothing fits, and the smallest change that would: each change is searched before it is proposed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tuneyard.api import BadInput, Task, TrainTask, check_task
from tuneyard.planning import tensor
from tuneyard.planning.context import can_split, degrees
from tuneyard.planning.search import Search


def refusal(search: Search) -> BadInput:
    """The error where nothing fits: what the smallest layout takes, term by term, and the smallest change that would fit."""
    estimate = search.estimate(search.smallest())
    memory = estimate.device
    terms = ", ".join(
        f"{name} {value:.1f}"
        for name, value in (
            ("weights", memory.weights_gb),
            ("gradients", memory.gradients_gb),
            ("optimizer", memory.optimizer_gb),
            ("activations", memory.activations_gb),
            ("libraries", memory.libraries_gb),
            ("other", memory.other_gb),
        )
        if name != "libraries" or value
    )
    host = f", and {estimate.host_gb:.1f} GB of host memory" if estimate.host_gb else ""
    where = f"{search.workers} x {search.gpu.sku}"
    return BadInput(
        f"does not fit on {where}: a rank takes {memory.total_gb:.1f} GB ({terms}){host}; usable are {search.usable_gb:.1f} GB",
        _advice(search),
    )


def _advice(search: Search) -> str:
    for words, changed in changes(search):
        if _is_allowed(changed) and changed.fits_at_all():
            return words
    return f"use a GPU with more memory than {search.gpu.sku}, a shorter maxLength, or a smaller model"


def _is_allowed(search: Search) -> bool:
    """Whether the changed task breaks no rule about combinations, so that the advice can be followed."""
    task = Task.model_validate({"name": "task", "train": search.task, "resources": {"sku": [search.gpu.sku], "workers": search.workers}})
    return not check_task(task, device=search.gpu.device, model_type=search.shape.model_type)


def changes(search: Search) -> Iterator[tuple[str, Search]]:
    """Changes that save memory, from the smallest to the largest, in words and as the search that they lead to."""
    task = search.task
    asked = task.layout
    if task.batch.micro != "auto":
        yield "set batch.micro to auto", _with(search, batch={"micro": "auto"})
    if asked.recompute is False:
        yield "set strategy.recompute to true", _with(search, strategy={"recompute": True})
    if asked.liger == "auto" and not search.liger and not search.gpu.is_cpu:
        yield "install liger-kernel, whose fused loss keeps no logits", replace(search, liger=True)
    if asked.zero != "auto":
        yield "set strategy.zero to auto", _with(search, strategy={"zero": "auto"})
    if asked.tensor_parallel > 1 and not asked.sequence_parallel:
        yield "set strategy.sequenceParallel to true", _with(search, strategy={"sequence_parallel": True})
    yield from _split_rows(search)
    yield from _cut_matrices(search)
    if task.optimizer.name == "adamw" and task.optimizer.states == "fp32" and not search.gpu.is_cpu:
        yield "keep optimizer states in 16 bits: set optimizer.states to bf16", _with(search, optimizer={"states": "bf16"})
    if task.optimizer.name == "adamw" and not search.gpu.is_cpu:
        zero = 2 if task.method.qlora or search.workers == 1 else 3
        moved = {"zero": zero, "recompute": True, "offload": {"optimizer": "cpu"}}
        yield f"offload the optimizer: set strategy.zero to {zero} and strategy.offload.optimizer to cpu", _with(search, strategy=moved)
    if task.method.name == "full":
        yield "train an adapter: set method to lora", _with(search, method={"lora": {}})
    if task.method.name in ("full", "lora") and not search.gpu.is_cpu:
        yield (
            "train an adapter on 4-bit weights: set method to qlora",
            _with(search, method={"qlora": {}}, strategy={"zero": "auto", "recompute": True}),
        )
    if not search.gpu.is_cpu:
        yield from _more_workers(search)


def _split_rows(search: Search) -> Iterator[tuple[str, Search]]:
    """Where only activations are too large: rows split over the workers that there are, or over more where there is one."""
    task, memory = search.task, search.estimate(search.smallest()).device
    if not can_split(task, search.shape) or task.layout.liger is True:
        return
    if memory.total_gb - memory.activations_gb > search.usable_gb:
        return
    cut = "" if task.layout.tensor_parallel == 1 else ", strategy.tensorParallel to 1 and strategy.sequenceParallel to false"
    for degree in degrees(search.shape, search.workers):
        if degree > task.layout.context_parallel:
            yield f"split rows over {degree} workers: set strategy.contextParallel to {degree}{cut}", _split(search, degree)
    if search.workers == 1 and not search.gpu.is_cpu:
        for degree in degrees(search.shape, 8):
            words = f"split rows over {degree} workers: set resources.workers and strategy.contextParallel to {degree}"
            yield words, replace(_split(search, degree), workers=degree)


def _split(search: Search, degree: int) -> Search:
    """The same task with rows split over so many ranks, whose matrices are then whole."""
    whole: dict[str, object] = {"context_parallel": degree, "tensor_parallel": 1, "sequence_parallel": False}
    split = _with(search, strategy=whole, batch={"micro": "auto"})
    return replace(split, tensor_parallel=(1,), attention="sdpa", liger=False)


def _cut_matrices(search: Search) -> Iterator[tuple[str, Search]]:
    """Matrices cut over the GPUs of a machine, where that was left out."""
    free = {"zero": "auto", "recompute": "auto", "tensor_parallel": 1}
    for degree in tensor.degrees(_with(search, strategy=free).task, search.shape, search.workers, search.gpus_per_node):
        if degree > search.task.layout.tensor_parallel:
            cut = _with(search, strategy={**free, "tensor_parallel": degree}, batch={"micro": "auto"})
            yield f"set strategy.tensorParallel to {degree}", cut


def _more_workers(search: Search) -> Iterator[tuple[str, Search]]:
    for factor in (2, 4, 8, 16):
        workers = search.workers * factor
        if search.task.batch.global_ % workers == 0:
            freed = _with(search, strategy={"zero": "auto", "recompute": "auto"}, batch={"micro": "auto"})
            yield f"use {workers} workers", replace(freed, workers=workers)


def _with(search: Search, *, method: dict[str, object] | None = None, **groups: dict[str, object]) -> Search:
    """The same search for a changed task: `method` replaced, other groups of fields updated."""
    values = search.task.model_dump(by_alias=False)
    values["strategy"] = search.task.layout.model_dump(by_alias=False)
    for name, changed in groups.items():
        values[name] |= changed
    if method is not None:
        values["method"] = method
    return replace(search, task=TrainTask.model_validate(values))
