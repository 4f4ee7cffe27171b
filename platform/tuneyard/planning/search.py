"""The search for plans of a train task that fit in memory on a placement, with their speed.

The search prunes. Memory grows with the micro-batch, so each layout needs only its largest micro-batch that fits, found by bisection;
smaller ones matter only to a pipeline, whose bubble they shrink. Recomputation is tried only where a layout without it cannot hold all rows
of a step at once. A layout whose weights and optimizer states alone are too large is skipped without an estimate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from tuneyard.api import BadInput, Strategy, TrainTask
from tuneyard.api.train import Offload
from tuneyard.catalog import Gpu, ModelShape
from tuneyard.planning.calibration import DEFAULT, Calibration
from tuneyard.planning.memory import LIBRARIES_GB, Estimate, estimate_memory
from tuneyard.planning.plan import Plan, Speed
from tuneyard.planning.setup import BYTES, Attention, Layout, Precision, Setup
from tuneyard.planning.speed import estimate_speed
from tuneyard.planning.tensor import cuts_something, heads_divide

USABLE = 0.92
"""Share of a device's memory that a plan may fill. The rest covers errors of the estimate."""
Zero = Literal[0, 1, 2, 3]
_STATES_AT_LEAST = {"adamw": 8.0, "adamw-8bit": 2.0}
"""Lower bound of optimizer state bytes per trained parameter."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """A train task on `workers` devices of one kind, with the choices that are open. `seq_len`: tokens of a row."""

    task: TrainTask
    shape: ModelShape
    gpu: Gpu
    workers: int
    host_memory_gb: float | None
    seq_len: int
    precision: Precision
    attention: Attention
    liger: bool
    notes: tuple[str, ...] = ()
    tensor_parallel: tuple[int, ...] = (1,)
    pipeline_parallel: tuple[int, ...] = (1,)
    gpus_per_node: int = 8
    network_gb_s: float | None = None
    calibration: Calibration = DEFAULT
    libraries_gb: float = LIBRARIES_GB

    def plans(self) -> list[Plan]:
        """All plans that fit and are not dominated, fastest first. Raises BadInput where no batch divides."""
        found = [self.plan(layout) for layout in self._fitting()]
        return sorted(found, key=lambda plan: -plan.speed.tokens_per_s if plan.speed else 0.0)

    def fits_at_all(self) -> bool:
        return next(self._fitting(), None) is not None

    def _fitting(self) -> Iterator[Layout]:
        self._check_batch()
        for layout in self.layouts():
            batches = self.micro_batches(layout)
            if not batches or self._surely_too_large(layout):
                continue
            plain = self._fitting_batches(layout, batches) if self._strategy.recompute is not True else []
            yield from plain
            if self._strategy.recompute is not False and (not plain or plain[0].micro_batch < batches[0]):
                yield from self._fitting_batches(replace(layout, recompute=True), batches)

    def _fitting_batches(self, layout: Layout, batches: list[int]) -> list[Layout]:
        """The layout with the largest micro-batch that fits, and for a pipeline with each smaller one; empty if none fits."""
        first = self._largest(layout, batches)
        if first is None:
            return []
        kept = batches[first:] if layout.pipeline_parallel > 1 else batches[first : first + 1]
        return [self.with_batch(layout, micro) for micro in kept]

    def _largest(self, layout: Layout, batches: list[int]) -> int | None:
        """Index of the largest micro-batch that fits, in `batches` in descending order.

        A single micro-batch per step keeps no gradients of earlier ones. It may fit where half of it does not, and is tried first.
        """
        if self.fits(self.with_batch(layout, batches[0])):
            return 0
        low, high = 1, len(batches)
        while low < high:
            middle = (low + high) // 2
            if self.fits(self.with_batch(layout, batches[middle])):
                high = middle
            else:
                low = middle + 1
        return low if low < len(batches) else None

    def with_batch(self, layout: Layout, micro: int) -> Layout:
        accum = self.task.batch.rows // (layout.data_parallel * micro)
        return replace(layout, micro_batch=micro, grad_accum=accum)

    @property
    def _strategy(self) -> Strategy:
        return self.task.layout

    def smallest(self) -> Layout:
        """The allowed layout that takes the least memory, for error messages. Raises BadInput where none is allowed."""
        recompute = self._strategy.recompute is not False
        self.check()
        legal = [replace(each, recompute=recompute) for each in self.layouts() if self.micro_batches(each)]
        return min(
            (self.with_batch(each, self.micro_batches(each)[-1]) for each in legal), key=lambda each: self.estimate(each).device.total_gb
        )

    def check(self) -> None:
        """Raises BadInput where no layout can work, regardless of memory."""
        self._check_batch()
        if not any(self.micro_batches(each) for each in self.layouts()):
            raise BadInput(
                f"there is no layout of this strategy for {self.workers} x {self.gpu.sku}",
                "set strategy.zero and strategy.precision to auto, or leave strategy.tensorParallel out",
            )

    def layouts(self) -> Iterator[Layout]:
        """Every legal layout, before recomputation and micro-batch are chosen."""
        asked = self._strategy
        for tensor, pipeline in self._degrees():
            for zero in self._stages():
                if pipeline > 1 and zero > 1:
                    continue  # stages 2 and 3 reduce gradients after each micro-batch, and a pipeline has many in flight
                if tensor > 1 and (zero == 3 or (zero == 0 and self.precision == "fp16")):
                    continue  # both cut the same weights, and torch's loss scaler does not support tensor-parallel parts
                for within in self._shardings(zero, tensor * pipeline):
                    yield Layout(
                        workers=self.workers,
                        zero=zero,
                        precision=self.precision,
                        attention=self.attention,
                        micro_batch=1,
                        seq_len=self.seq_len,
                        liger=self.liger and (tensor == 1 or pipeline > 1),
                        compiled=asked.compile == "layers",
                        offload_optimizer=asked.offload.optimizer,
                        offload_parameters=asked.offload.parameters,
                        tensor_parallel=tensor,
                        pipeline_parallel=pipeline,
                        sequence_parallel=(tensor > 1 and pipeline > 1) or asked.sequence_parallel,
                        context_parallel=asked.context_parallel,
                        shard_within=within,
                        quantised_all_reduce="none" if zero == 3 and within == "none" else asked.quantised_all_reduce,
                        engine="megatron" if pipeline > 1 else "deepspeed",
                    )

    def layout_of(self, plan: Plan, seq_len: int) -> Layout:
        """The layout of a plan of this search, for rows of `seq_len` tokens."""
        return Layout(
            workers=plan.workers,
            zero=plan.zero,
            precision=plan.precision,
            attention=plan.attention,
            micro_batch=plan.micro_batch,
            seq_len=seq_len,
            grad_accum=plan.grad_accum,
            recompute=plan.recompute,
            liger=plan.liger,
            compiled=plan.compiled,
            offload_optimizer=plan.offload_optimizer,
            offload_parameters=plan.offload_parameters,
            tensor_parallel=plan.tensor_parallel,
            pipeline_parallel=plan.pipeline_parallel,
            sequence_parallel=plan.sequence_parallel,
            context_parallel=plan.context_parallel,
            shard_within=plan.shard_within,
            quantised_all_reduce=plan.quantised_all_reduce,
            engine="megatron" if plan.pipeline_parallel > 1 else "deepspeed",
        )

    def _degrees(self) -> Iterator[tuple[int, int]]:
        """Tensor and pipeline degrees that divide the workers and the model. Without a pipeline, heads need not divide in training here:
        attention is then whole on every rank.
        """
        asked = self._strategy.tensor_parallel
        for tensor in (asked,) if asked > 1 or self._strategy.compile == "layers" else self.tensor_parallel:
            for pipeline in self.pipeline_parallel:
                if not (heads_divide(self.shape, tensor) or (pipeline == 1 and asked > 1 and cuts_something(self.shape, tensor))):
                    continue
                if self.workers % (tensor * pipeline * self._strategy.context_parallel) == 0 and pipeline <= self.shape.layers:
                    yield tensor, pipeline

    def _stages(self) -> tuple[Zero, ...]:
        """ZeRO stages to try. Layers that ZeRO 3 gathers weights in cannot be compiled."""
        stages = self._possible_stages()
        return tuple(stage for stage in stages if stage < 3) if self._strategy.compile == "layers" else stages

    def _possible_stages(self) -> tuple[Zero, ...]:
        """ZeRO stages of the other settings. Offloading needs a stage above 0, several ranks gain from each, and a stage is left out
        where a setting excludes it.
        """
        asked, offload = self._strategy.zero, self._strategy.offload
        if asked != "auto":
            return (asked,)
        if self._strategy.shard_within == "host":
            return (3,)
        if self._strategy.quantised_all_reduce != "none":
            return (0, 3) if self._strategy.shard_within == "auto" else (0,)
        if offload.parameters != "none" or offload.optimizer == "nvme":
            return (3,)
        if offload.optimizer == "cpu":
            return (2, 3) if self.workers > 1 and self.task.method.qlora is None else (2,)
        if self.workers == 1 or self.task.optimizer.name == "adafactor":
            return (0,)
        return (0, 1, 2) if self.task.method.qlora or self._strategy.tensor_parallel > 1 else (0, 1, 2, 3)

    def _shardings(self, zero: Zero, parts: int) -> tuple[Literal["none", "host"], ...]:
        """Candidates for `shardWithin`. `parts`: tensor times pipeline degree."""
        asked = self._strategy
        if asked.shard_within == "host":
            return ("host",) if self._has_hosts else ("none",)  # one host, or hosts with unequal numbers of ranks: ZeRO-3 over all ranks
        if asked.shard_within == "none":
            return ("none",)
        whole_only = asked.quantised_all_reduce != "none" and zero == 3  # DeepSpeed scatters the gradients of all ranks by itself
        possible = zero == 3 and parts * asked.context_parallel == 1 and asked.offload == Offload() and self._has_hosts
        return (*(() if whole_only else ("none",)), *(("host",) if possible else ()))

    @property
    def _has_hosts(self) -> bool:
        """Whether there are several hosts with equal numbers of ranks, more than one on each."""
        return 1 < self._per_host < self.workers and self.workers % self._per_host == 0

    @property
    def _per_host(self) -> int:
        return min(self.workers, self.gpus_per_node) if not self.gpu.is_cpu or self.network_gb_s is not None else self.workers

    def _check_batch(self) -> None:
        """Raises BadInput where the global batch does not divide over the ranks of any layout."""
        batch = self.task.batch
        replicas = sorted({self.workers // (tensor * pipeline * self._strategy.context_parallel) for tensor, pipeline in self._degrees()})
        if not replicas:
            raise self._without_degrees()
        micro = 1 if batch.micro == "auto" else batch.micro
        if any(batch.rows % (count * micro) == 0 for count in replicas):
            return
        unit = replicas[0] * micro
        nearest = max(unit, round(batch.rows / unit) * unit)
        parts = f"{replicas[0]} workers" + ("" if batch.micro == "auto" else f" x micro-batch {batch.micro}")
        raise BadInput(f"global batch {batch.rows} does not divide into {parts}", f"set batch.global to {nearest}")

    def _without_degrees(self) -> BadInput:
        """No given degree divides workers, heads and layers. The next step has degrees that do; 1 is always among them."""
        asked, shape, groups = self._strategy.tensor_parallel, self.shape, self.workers // self._strategy.context_parallel
        whole = [degree for degree in range(1, groups + 1) if groups % degree == 0]
        tensor = [degree for degree in whole if heads_divide(shape, degree) or (asked > 1 and cuts_something(shape, degree))]
        setting = "strategy.tensorParallel" if asked > 1 else "tensor_parallel"
        stages = "" if tuple(self.pipeline_parallel) == (1,) else " and pipeline_parallel to 1"
        parts = f"{shape.heads} heads, {shape.kv_heads} key heads and {shape.layers} layers"
        return BadInput(
            f"{self.workers} workers cannot hold a {shape.model_type} model of {parts} in equal parts",
            f"set {setting} to {' or '.join(map(str, tensor))}{stages}",
        )

    def micro_batches(self, layout: Layout) -> list[int]:
        """Micro-batches to try, in descending order: powers of two that divide the rows of a rank. Empty where the rows do not divide."""
        batch = self.task.batch
        rows, rest = divmod(batch.rows, layout.data_parallel)
        if rest:
            return []
        if batch.micro != "auto":
            return [batch.micro] if rows % batch.micro == 0 else []
        return [2**power for power in reversed(range(rows.bit_length())) if rows % 2**power == 0]

    def _surely_too_large(self, layout: Layout) -> bool:
        """Whether the weights and optimizer states of the layers alone, in their smallest dtypes, do not fit."""
        task, replicas = self.task, self.setup(layout).shards
        layers = self.shape.parameters - 2 * self.shape.embedding_parameters  # embedding and head are at the ends of a pipeline
        needed = 0.0
        if layout.offload_parameters == "none":
            needed += layers * (0.5 if task.method.qlora else BYTES[self.precision]) / (replicas if layout.zero == 3 else 1)
        if task.method.adapter is None and layout.offload_optimizer == "none":
            needed += (
                layers
                * _STATES_AT_LEAST.get(task.optimizer.name, 0.0)
                * (0.5 if task.optimizer.states == "bf16" else 1)
                / (replicas if layout.zero else 1)
            )
        return needed / (layout.tensor_parallel * layout.pipeline_parallel) / 1e9 > self.usable_gb

    def setup(self, layout: Layout) -> Setup:
        return Setup(
            shape=self.shape,
            gpu=self.gpu,
            layout=layout,
            method=self.task.method,
            optimizer=self.task.optimizer.name,
            optimizer_states=self.task.optimizer.states,
            objective=self.task.objective,
            gpus_per_node=self.gpus_per_node,
            network_gb_s=self.network_gb_s,
            packed=self.task.data.pack,
        )

    def estimate(self, layout: Layout) -> Estimate:
        return estimate_memory(self.setup(layout), self.libraries_gb)

    @property
    def usable_gb(self) -> float:
        """Memory that one rank may fill. Ranks on `cpu` share the machine."""
        return USABLE * self.gpu.memory_gb / (self.workers if self.gpu.is_cpu else 1)

    def fits(self, layout: Layout) -> bool:
        estimate = self.estimate(layout)
        on_host = self.host_memory_gb is None or estimate.host_gb <= self.host_memory_gb
        return on_host and estimate.device.total_gb <= self.usable_gb

    def plan(self, layout: Layout) -> Plan:
        setup = self.setup(layout)
        estimate = estimate_memory(setup, self.libraries_gb)
        speed: Speed = estimate_speed(setup, self.calibration)
        return Plan(
            sku=self.gpu.sku,
            workers=self.workers,
            zero=layout.zero,
            offload_optimizer=layout.offload_optimizer,
            offload_parameters=layout.offload_parameters,
            nvme_path=self._strategy.offload.nvme_path,
            tensor_parallel=layout.tensor_parallel,
            pipeline_parallel=layout.pipeline_parallel,
            sequence_parallel=layout.sequence_parallel,
            context_parallel=layout.context_parallel,
            shard_within=layout.shard_within,
            quantised_all_reduce=layout.quantised_all_reduce,
            recompute=layout.recompute,
            precision=layout.precision,
            attention=layout.attention,
            liger=layout.liger,
            compiled=layout.compiled,
            micro_batch=layout.micro_batch,
            grad_accum=layout.grad_accum,
            memory=estimate.device,
            host_memory_gb=estimate.host_gb,
            speed=speed,
            notes=self.notes,
        )
