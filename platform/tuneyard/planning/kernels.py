"""The kernels of a train task: its attention, and whether it takes Liger's. Where a choice is not the usual one, it comes with a reason."""

from __future__ import annotations

from typing import NamedTuple

from tuneyard.api import BadInput, TrainTask
from tuneyard.catalog import WIDEST_FLASH_HEAD, Gpu, ModelShape, attention_kinds, has_fused_loss, has_liger, has_varlen
from tuneyard.planning.setup import Attention, Precision


class Kernels(NamedTuple):
    """`notes`: why a kernel that is usual on the device is not taken, for the reader of the plan."""

    attention: Attention
    liger: bool
    notes: tuple[str, ...] = ()


def kernels_of(
    task: TrainTask, shape: ModelShape, gpu: Gpu, precision: Precision, *, flash_package: bool | None, liger_package: bool
) -> Kernels:
    """The kernels for a task on a device. `flash_package`: whether flash-attn is installed there; `auto` takes None (unknown) for no.

    Raises BadInput for a kernel that the task asks for and cannot have.
    """
    attention, about_attention = _attention(task, shape, gpu, precision, flash_package)
    liger, about_liger = _liger(task, shape, gpu, liger_package)
    return Kernels(attention, liger, (*about_attention, *about_liger))


def _liger(task: TrainTask, shape: ModelShape, gpu: Gpu, package: bool) -> tuple[bool, tuple[str, ...]]:
    lack = _lack_of_liger(task, shape)
    if task.layout.liger == "auto":
        if not package or gpu.is_cpu:
            return False, ()
        if lack is not None:
            return False, (f"no Liger kernels for {lack.words}",)
        partial = () if has_fused_loss(shape.model_type) else (f"no fused loss of Liger for {shape.model_type}, so logits are kept",)
        return _layout_allows(task), partial
    if task.layout.liger:
        _refuse_liger(task, gpu, lack)
    return task.layout.liger, ()


class _Lack(NamedTuple):
    """Why Liger cannot be used for a model: what for, the cause, and the next step."""

    words: str
    cause: str
    next_step: str


def _lack_of_liger(task: TrainTask, shape: ModelShape) -> _Lack | None:
    if not has_liger(shape.model_type):
        return _Lack(shape.model_type, f"liger-kernel has no kernels for a {shape.model_type} model", "set strategy.liger to auto")
    adapter = task.method.adapter
    if adapter is not None and adapter.names_head:
        return _Lack(
            "an adapter on lm_head, which the fused loss would not train",
            "Liger's fused loss reads the weight of lm_head past its adapter, which would not be trained",
            "set strategy.liger to auto, or put lm_head into saveModules instead of targets",
        )
    return None


def _layout_allows(task: TrainTask) -> bool:
    """The fused loss multiplies by the head's whole weight, and shifts labels inside a row."""
    return task.layout.tensor_parallel == 1 and task.layout.context_parallel == 1


def _refuse_liger(task: TrainTask, gpu: Gpu, lack: _Lack | None) -> None:
    if gpu.is_cpu:
        raise BadInput("Liger kernels run on GPUs only", "set strategy.liger to auto")
    if task.layout.context_parallel > 1:
        raise BadInput("Liger's fused loss does not take slices of rows (contextParallel)", "set strategy.liger to auto")
    if lack is not None:
        raise BadInput(lack.cause, lack.next_step)


def _attention(
    task: TrainTask, shape: ModelShape, gpu: Gpu, precision: Precision, package: bool | None
) -> tuple[Attention, tuple[str, ...]]:
    asked, has = task.model.attention, attention_kinds(shape.model_type)
    if task.layout.context_parallel > 1:
        if asked not in ("auto", "sdpa"):
            raise BadInput(
                f"{asked} attention cannot be split along rows, as contextParallel asks", "set model.attention to auto, which takes sdpa"
            )
        return "sdpa", ()
    if asked == "auto":
        why = _why_no_flash(shape, gpu, precision, package=bool(package))
        taken = "flash" if why is None else next(kind for kind in has if kind != "flash")
        return taken, () if why is None or gpu.is_cpu else (f"{taken} attention: {why}",)
    if asked not in has:
        raise BadInput(f"a {shape.model_type} model has no {asked} attention in transformers", "set model.attention to auto or eager")
    if asked == "flash" and not gpu.has_flash:
        raise BadInput(
            f"{gpu.sku} cannot run flash attention, which needs an NVIDIA GPU of the Ampere generation or newer, "
            "or an AMD Instinct of the MI200 series or newer",
            "set model.attention to auto",
        )
    if asked == "flash" and (why := _why_no_flash(shape, gpu, precision, package=package is not False)):
        raise BadInput(why, "set model.attention to auto")
    return asked, ()


def _why_no_flash(shape: ModelShape, gpu: Gpu, precision: Precision, *, package: bool) -> str | None:
    """Why flash attention cannot be taken; None: it can. `package`: flash-attn is installed. Otherwise the kernel inside torch is taken."""
    kind = shape.model_type
    if "flash" not in attention_kinds(kind):
        return f"a {kind} model has no flash attention in transformers"
    if not gpu.has_flash:
        return f"{gpu.sku} has no flash attention"
    if precision == "fp32":
        return "flash attention computes in 16 bits only"
    if shape.head_dim > WIDEST_FLASH_HEAD:
        return f"flash attention has no heads of {shape.head_dim}"
    if not package and (gpu.compute_capability is None or not has_varlen(kind)):
        what = f"flash attention of a {kind} model" if gpu.compute_capability is not None else f"flash attention on {gpu.sku}"
        return f"{what} needs the package flash-attn"
    return None
