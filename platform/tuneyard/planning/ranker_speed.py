"""Step time of a ranker: matrix products by achieved rates, other kernels by their memory traffic, tables by the costs that placement uses,
and exchanges by the links. Pure.

Rates of `cpu` were measured module by module, in seconds of one core, not fitted to whole rankers: docs/benchmarks/ranker_memory.md judges
them. Rates of GPUs are the planner's own; no ranker was measured there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuneyard.api import RankTask
from tuneyard.api.rank import ExchangeName
from tuneyard.catalog import Gpu
from tuneyard.planning.calibration import DEFAULT, Calibration, Efficiency
from tuneyard.planning.links import GIGA, Links
from tuneyard.planning.plan import Plan, Speed, StepTime
from tuneyard.planning.ranker_shape import Count, RankerShape
from tuneyard.planning.setup import BYTES

ID_S, CELL_S = 4e-8, 5e-9
"""Seconds of a core per id, and per element of its embedding, over forward, backward and update: `benchmarks/ranker_costs.py`. The
placement of tables uses the same weights.
"""
_PASSES = 3
"""Forward and backward: backward has twice the products of forward."""
_ADAM_TRAFFIC = 28.0
"""Bytes per parameter that Adam reads and writes: gradient, weight and both means."""
_TABLE_TRAFFIC = 8
"""Reads and writes of an embedding element on a GPU: look-up, exchange, sum of gradients, and the row's update."""
_SENT = 4
"""Bytes of an id on the wire, of an fp32 number, and of the scale of a vector in fewer bits."""
_SENT_ELEMENT: Mapping[ExchangeName, int] = {"fp16": 2, "int8": 1}
_KERNELS = 25
"""Kernels of a module, forward and backward."""


@dataclass(frozen=True, kw_only=True)
class RankerRates:
    """Shares of peaks. `row`: of products of each row separately, with a wide narrow side; `row_width`: width at which they reach half of
    it.
    """

    row: float
    row_width: float
    attention: float
    convolution: float
    memory: float
    step_s: float
    """Fixed time of a step, independent of its size."""


_CPU = RankerRates(row=0.6, row_width=8.0, attention=0.05, convolution=0.02, memory=0.35, step_s=0.008)
_GPU = RankerRates(row=0.3, row_width=64.0, attention=0.1, convolution=0.05, memory=0.85, step_s=0.002)


def vector_bytes(width: int, exchange: ExchangeName) -> int:
    """Bytes of an embedding of `width` elements on the wire, and of its gradient. Vectors in fewer bits have a scale each."""
    return width * _SENT if exchange == "fp32" else width * _SENT_ELEMENT[exchange] + _SENT


def speed_of_ranker(
    task: RankTask, plan: Plan, gpu: Gpu, *, gpus_per_node: int = 8, network_gb_s: float | None = None, calibration: Calibration = DEFAULT
) -> Speed:
    """Predicted speed. `tokens_per_s` are rows. A bag is assumed to have one id, and a sequence its maximal length."""
    shape, efficiency = RankerShape.of(task), calibration.of(gpu)
    ranks_per_host = plan.workers if gpu.is_cpu and network_gb_s is None else gpus_per_node
    links = Links.between(gpu, efficiency, plan.workers, ranks_per_host, network_gb_s)
    terms = _Step(task, shape, plan, gpu, efficiency, links).terms()
    rows_per_s = plan.global_batch / terms.total_s
    peak = gpu.rank_peak_flops(plan.precision, plan.workers) * plan.workers
    return Speed(
        terms=terms,
        tokens_per_s=rows_per_s,
        tokens_per_s_per_gpu=rows_per_s / plan.workers,
        mfu=rows_per_s * _PASSES * sum(part.flops for part in shape.parts) / peak,
    )


@dataclass(frozen=True)
class _Step:
    task: RankTask
    shape: RankerShape
    plan: Plan
    gpu: Gpu
    efficiency: Efficiency
    links: Links

    @property
    def rates(self) -> RankerRates:
        return _CPU if self.gpu.is_cpu else _GPU

    @property
    def rows(self) -> int:
        """Rows of a rank in a step."""
        return self.plan.micro_batch * self.plan.grad_accum

    @property
    def bandwidth(self) -> float:
        """Bytes a second that a rank's kernels move."""
        sharing = self.plan.workers if self.gpu.is_cpu else 1
        return self.gpu.memory_bandwidth_gb_s * GIGA * self.rates.memory / sharing

    def terms(self) -> StepTime:
        plan, shape = self.plan, self.shape
        passes = (_PASSES + plan.recompute) / _PASSES
        products = self.rows * sum(self._products_s(part) for part in shape.parts) * passes
        attention = self.rows * sum(part.attention_flops for part in shape.parts) * _PASSES * passes / (self._peak * self.rates.attention)
        moved = self.rows * sum(part.moved for part in shape.parts) * BYTES[plan.precision] * passes / self.bandwidth
        compute = products + attention + moved
        overlap = 0.0 if self.gpu.is_cpu else 0.7
        gathers, reduced = self._gradients_s()
        kernels = _KERNELS * len(shape.parts) * self.efficiency.launch_s * plan.grad_accum
        shards = plan.workers if plan.zero >= 1 else 1
        return StepTime(
            matmul_s=products,
            attention_s=attention,
            elementwise_s=moved,
            data_parallel_s=max(0.0, reduced - overlap * compute),
            gathers_s=gathers,
            optimizer_s=shape.parameters / shards * _ADAM_TRAFFIC / self.bandwidth,
            launch_s=self.rates.step_s + (kernels if self.gpu.is_cpu else max(0.0, kernels - compute)),
            tables_s=self._tables_s(),
            table_exchange_s=self._exchange_s(),
        )

    @property
    def _peak(self) -> float:
        return self.gpu.rank_peak_flops(self.plan.precision, self.plan.workers)

    def _products_s(self, part: Count) -> float:
        """Seconds of the products of a row, forward and backward."""
        efficiency, rates, shape = self.efficiency, self.rates, self.shape
        micro, narrow = self.plan.micro_batch, min(shape.width, shape.outputs)
        plain = part.flops - part.row_flops - part.attention_flops - part.convolution_flops
        large = efficiency.matmul * micro / (micro + efficiency.matmul_tokens) * shape.width / (shape.width + efficiency.matmul_width)
        row = rates.row * narrow / (narrow + rates.row_width)
        return _PASSES * (plain / large + part.row_flops / row + part.convolution_flops / rates.convolution) / self._peak

    def _tables_s(self) -> float:
        """Seconds of a mean rank. Placement balances these costs."""
        ids, width = self.rows * self.shape.vectors, self.shape.width
        if self.gpu.is_cpu or self.task.tables.offload == "cpu":
            return ids * (ID_S + width * CELL_S)
        return ids * width * _SENT * _TABLE_TRAFFIC / self.bandwidth

    def _exchange_s(self) -> float:
        ids = self.rows * self.shape.vectors
        once = self.links.scatter_s(ids * vector_bytes(self.shape.width, self.task.tables.exchange), self.plan.workers)
        return 2 * once + self.links.scatter_s(ids * _SENT, self.plan.workers)

    def _gradients_s(self) -> tuple[float, float]:
        """Seconds of gathers of sharded weights, and of averaging gradients."""
        plan, size = self.plan, self.shape.parameters * 4
        ring = self.links.ring_s(size, plan.workers)
        if plan.zero == 3:
            return 2 * ring * plan.grad_accum, ring * plan.grad_accum
        return 0.0, 2 * ring
