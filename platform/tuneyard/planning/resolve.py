"""The plan of a train task: every `auto` decided, every explicit setting kept. Pure: the same arguments give the same plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from tuneyard.api import BadInput, TrainTask
from tuneyard.catalog import Gpu, ModelShape
from tuneyard.planning.memory import Estimate, estimate_memory
from tuneyard.planning.plan import Plan
from tuneyard.planning.setup import Layout, Precision, Setup

USABLE = 0.92
"""Share of a device's memory that a plan may fill; the rest is for what an estimate misses."""
Zero = Literal[0, 1, 2, 3]


def resolve(
    task: TrainTask,
    shape: ModelShape,
    gpu: Gpu,
    workers: int,
    *,
    host_memory_gb: float | None = None,
    max_seq: int | None = None,
    flash_available: bool = False,
    liger_available: bool = False,
) -> Plan:
    """The plan of `task` on `workers` devices of the kind `gpu`.

    Recomputation only where it does not fit without, the lowest ZeRO stage that fits, then the largest micro-batch (a power of two).
    `host_memory_gb`: what offloading may take per rank; None: not limited. `max_seq`: the longest row of the data, where it is known.
    `flash_available`, `liger_available`: whether the kernels are installed where the task will run. Workers on `cpu` share one machine.
    Raises BadInput where the global batch does not divide, a setting cannot work on the device, or nothing fits: then with the memory it
    would take, and the smallest change that would fit.
    """
    if workers < 1:
        raise BadInput(f"{workers} workers cannot train", "set resources.workers to 1 or more")
    search = _Search(
        task=task,
        shape=shape,
        gpu=gpu,
        workers=workers,
        host_memory_gb=host_memory_gb,
        seq_len=min(task.data.max_length, max_seq or task.data.max_length),
        precision=_precision(task, gpu),
        attention=_attention(task, gpu, flash_available),
        liger=_liger(task, gpu, liger_available),
    )
    layout = search.best()
    if layout is None:
        raise search.refusal()
    return search.plan(layout)


def _precision(task: TrainTask, gpu: Gpu) -> Precision:
    asked = task.layout.precision
    if asked == "auto":
        return "fp32" if gpu.is_cpu else "bf16" if gpu.has_bf16 else "fp16"
    if asked == "bf16" and not gpu.is_cpu and not gpu.has_bf16:
        raise BadInput(f"{gpu.sku} has no bf16", "set strategy.precision to fp16 or auto")
    if asked == "fp16" and gpu.is_cpu:
        raise BadInput("fp16 training does not work on cpu", "set strategy.precision to fp32, bf16 or auto")
    return asked


def _attention(task: TrainTask, gpu: Gpu, available: bool) -> Literal["flash", "sdpa", "eager"]:
    asked = task.model.attention
    half = _precision(task, gpu) != "fp32"
    if asked == "auto":
        return "flash" if available and gpu.has_flash and half else "sdpa"
    if asked == "flash" and not gpu.has_flash:
        raise BadInput(
            f"{gpu.sku} cannot run flash attention, which needs an NVIDIA GPU of the Ampere generation or newer",
            "set model.attention to auto",
        )
    return asked


def _liger(task: TrainTask, gpu: Gpu, available: bool) -> bool:
    asked = task.layout.liger
    if asked is True and gpu.is_cpu:
        raise BadInput("Liger kernels run on GPUs only", "set strategy.liger to auto")
    return available and not gpu.is_cpu if asked == "auto" else asked


@dataclass(frozen=True, kw_only=True)
class _Search:
    task: TrainTask
    shape: ModelShape
    gpu: Gpu
    workers: int
    host_memory_gb: float | None
    seq_len: int
    precision: Precision
    attention: Literal["flash", "sdpa", "eager"]
    liger: bool

    def best(self) -> Layout | None:
        """The first layout that fits, with the largest micro-batch that fits it; None if none does."""
        micros = self._micro_batches()
        for layout in self._layouts():
            for micro in micros:
                candidate = replace(layout, micro_batch=micro)
                if self.fits(candidate):
                    return candidate
        return None

    def _layouts(self) -> Iterator[Layout]:
        """Layouts from the fastest to the smallest: more ZeRO costs some communication, recomputation a third of all compute."""
        asked = self.task.layout
        recomputes = (False, True) if asked.recompute == "auto" else (asked.recompute,)
        for recompute in recomputes:
            for zero in self._stages():
                yield Layout(
                    workers=self.workers,
                    zero=zero,
                    precision=self.precision,
                    attention=self.attention,
                    micro_batch=1,
                    seq_len=self.seq_len,
                    recompute=recompute,
                    liger=self.liger,
                    offload_optimizer=asked.offload.optimizer,
                    offload_parameters=asked.offload.parameters,
                )

    def _stages(self) -> tuple[Zero, ...]:
        """ZeRO stages to try. Offloading needs one; several ranks gain from each; what a stage cannot do leaves it out."""
        asked, offload = self.task.layout.zero, self.task.layout.offload
        if asked != "auto":
            return (asked,)
        if offload.parameters != "none" or offload.optimizer == "nvme":
            return (3,)
        if offload.optimizer == "cpu":
            return (2, 3) if self.workers > 1 and self.task.method.qlora is None else (2,)
        if self.workers == 1 or self.task.optimizer.name == "adafactor":
            return (0,)
        return (0, 1, 2) if self.task.method.qlora else (0, 1, 2, 3)

    def _micro_batches(self) -> list[int]:
        """Micro-batches to try, largest first. Raises BadInput where the global batch does not divide."""
        batch, workers = self.task.batch, self.workers
        unit = workers if batch.micro == "auto" else workers * batch.micro
        if batch.global_ % unit:
            nearest = max(unit, round(batch.global_ / unit) * unit)
            parts = f"{workers} workers" + ("" if batch.micro == "auto" else f" x micro-batch {batch.micro}")
            raise BadInput(f"global batch {batch.global_} does not divide into {parts}", f"set batch.global to {nearest}")
        if batch.micro != "auto":
            return [batch.micro]
        rows = batch.global_ // workers
        return [2**power for power in reversed(range(rows.bit_length())) if rows % 2**power == 0]

    def estimate(self, layout: Layout) -> Estimate:
        return estimate_memory(Setup.of(self.task, self.shape, self.gpu, layout))

    @property
    def usable_gb(self) -> float:
        """What one rank may fill; ranks on `cpu` share the machine."""
        return USABLE * self.gpu.memory_gb / (self.workers if self.gpu.is_cpu else 1)

    def fits(self, layout: Layout) -> bool:
        estimate = self.estimate(layout)
        on_host = self.host_memory_gb is None or estimate.host_gb <= self.host_memory_gb
        return on_host and estimate.device.total_gb <= self.usable_gb

    def plan(self, layout: Layout) -> Plan:
        estimate = self.estimate(layout)
        return Plan(
            sku=self.gpu.sku,
            workers=self.workers,
            zero=layout.zero,
            offload_optimizer=layout.offload_optimizer,
            offload_parameters=layout.offload_parameters,
            nvme_path=self.task.layout.offload.nvme_path,
            tensor_parallel=self.task.layout.tensor_parallel,
            recompute=layout.recompute,
            precision=layout.precision,
            attention=layout.attention,
            liger=layout.liger,
            micro_batch=layout.micro_batch,
            grad_accum=self.task.batch.global_ // (self.workers * layout.micro_batch),
            memory=estimate.device,
            host_memory_gb=estimate.host_gb,
        )

    def refusal(self) -> BadInput:
        """The error where nothing fits: what the smallest layout takes, term by term, and the smallest change that would fit."""
        smallest = replace(list(self._layouts())[-1], micro_batch=self._micro_batches()[-1])
        estimate = self.estimate(smallest)
        memory = estimate.device
        terms = ", ".join(
            f"{name} {value:.1f}"
            for name, value in (
                ("weights", memory.weights_gb),
                ("gradients", memory.gradients_gb),
                ("optimizer", memory.optimizer_gb),
                ("activations", memory.activations_gb),
                ("other", memory.other_gb),
            )
        )
        host = f", and {estimate.host_gb:.1f} GB of host memory" if estimate.host_gb else ""
        where = f"{self.workers} x {self.gpu.sku}"
        return BadInput(
            f"does not fit on {where}: a rank takes {memory.total_gb:.1f} GB ({terms}){host}; usable are {self.usable_gb:.1f} GB",
            self._advice(),
        )

    def _advice(self) -> str:
        for words, changed in self._ladder():
            if changed.best() is not None:
                return words
        return f"use a GPU with more memory than {self.gpu.sku}, a shorter maxLength, or a smaller model"

    def _ladder(self) -> Iterator[tuple[str, _Search]]:
        """Changes that save memory, from the smallest to the largest."""
        asked = self.task.layout
        if self.task.batch.micro != "auto":
            yield "set batch.micro to auto", self._with(batch={"micro": "auto"})
        if asked.recompute is False:
            yield "set strategy.recompute to true", self._with(strategy={"recompute": True})
        if asked.liger == "auto" and not self.liger and not self.gpu.is_cpu:
            yield "install liger-kernel, whose fused loss keeps no logits", replace(self, liger=True)
        if asked.zero != "auto":
            yield "set strategy.zero to auto", self._with(strategy={"zero": "auto"})
        if self.task.optimizer.name == "adamw" and not self.gpu.is_cpu:
            zero = 2 if self.task.method.qlora or self.workers == 1 else 3
            moved = {"zero": zero, "recompute": True, "offload": {"optimizer": "cpu"}}
            yield f"offload the optimizer: set strategy.zero to {zero} and strategy.offload.optimizer to cpu", self._with(strategy=moved)
        if self.task.method.name == "full":
            yield "train an adapter: set method to lora", self._with(method={"lora": {}})
        if self.task.method.name in ("full", "lora") and not self.gpu.is_cpu:
            yield (
                "train an adapter on 4-bit weights: set method to qlora",
                self._with(method={"qlora": {}}, strategy={"zero": "auto", "recompute": True}),
            )
        if not self.gpu.is_cpu:
            yield from self._more_workers()

    def _more_workers(self) -> Iterator[tuple[str, _Search]]:
        for factor in (2, 4, 8, 16):
            workers = self.workers * factor
            if self.task.batch.global_ % workers == 0:
                yield (
                    f"use {workers} workers",
                    replace(self._with(strategy={"zero": "auto", "recompute": "auto"}, batch={"micro": "auto"}), workers=workers),
                )

    def _with(self, *, method: dict[str, object] | None = None, **groups: dict[str, object]) -> _Search:
        """The same search for a changed task: `method` replaced, other groups of fields updated."""
        values = self.task.model_dump(by_alias=False)
        values["strategy"] = self.task.layout.model_dump(by_alias=False)
        for name, changes in groups.items():
            values[name] |= changes
        if method is not None:
            values["method"] = method
        return replace(self, task=TrainTask.model_validate(values))
