"""A plan: parallel layout, batch sizes and memory options of one task on one placement. It decides every `auto`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Memory:
    """Peak memory of one rank by term, in 1e9 bytes. The terms add up to `total_gb`."""

    weights_gb: float = 0.0
    gradients_gb: float = 0.0
    optimizer_gb: float = 0.0
    optimizer_step_gb: float = 0.0
    """Extra memory of the optimizer while it steps, mostly fp32 copies of gradients; 0 where the peak is at another moment."""
    activations_gb: float = 0.0
    libraries_gb: float = 0.0
    """Memory of a rank on `cpu` before it loads the model; 0 on GPUs, where libraries are in host memory."""
    other_gb: float = 0.0

    @property
    def total_gb(self) -> float:
        return float(sum(vars(self).values()))


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """Seconds of a step by term, each without the part hidden under another. They add up to `total_s`."""

    matmul_s: float = 0.0
    attention_s: float = 0.0
    elementwise_s: float = 0.0
    """Memory traffic of norms, activations, adapters, unpacking of 4-bit weights, and the loss."""
    tensor_parallel_s: float = 0.0
    context_parallel_s: float = 0.0
    """Exchanges of row slices for heads around attention."""
    data_parallel_s: float = 0.0
    """Gradients, and gathers of weights after a sharded optimizer step."""
    gathers_s: float = 0.0
    """Weights that ZeRO-3 gathers for each pass."""
    pipeline_s: float = 0.0
    """The bubble, unequal stages, and sends between stages."""
    offload_s: float = 0.0
    """Traffic over PCIe and to disks."""
    cpu_optimizer_s: float = 0.0
    optimizer_s: float = 0.0
    launch_s: float = 0.0
    """The device waits for Python to launch kernels."""
    tables_s: float = 0.0
    """Rankers: look-ups in embedding tables, and updates of their rows."""
    table_exchange_s: float = 0.0
    """Rankers: exchange of ids, embeddings and their gradients between ranks."""

    @property
    def total_s(self) -> float:
        return float(sum(vars(self).values()))


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Predicted speed. `tokens_per_s`: rows per second for a ranker.

    `mfu`: model FLOPs (PaLM's convention, as in docs/mfu.md) over the peak of all devices at the precision, 0 to 1.
    """

    terms: StepTime
    tokens_per_s: float
    tokens_per_s_per_gpu: float
    mfu: float
    compile_s: float = 0.0
    """Seconds in which the first steps compile layers, beside `step_s`."""

    @property
    def step_s(self) -> float:
        return self.terms.total_s


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The layout of a train task, without `auto`. `global_batch == micro_batch * grad_accum * data_parallel`."""

    sku: str
    workers: int
    zero: Literal[0, 1, 2, 3]
    offload_optimizer: Literal["none", "cpu", "nvme"] = "none"
    offload_parameters: Literal["none", "cpu", "nvme"] = "none"
    nvme_path: str = "/tmp/tuneyard-nvme"
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    sequence_parallel: bool = False
    context_parallel: int = 1
    shard_within: Literal["none", "host"] = "none"
    quantised_all_reduce: Literal["none", "int8", "fp8"] = "none"
    recompute: bool = False
    precision: Literal["bf16", "fp16", "fp32"]
    attention: Literal["flash", "sdpa", "eager"]
    liger: bool = False
    compiled: bool = False
    """Decoder layers are compiled."""
    micro_batch: int
    grad_accum: int
    memory: Memory = field(default_factory=Memory)
    host_memory_gb: float = 0.0
    fits: bool = True
    speed: Speed | None = None
    """Predicted speed; None for a plan without a prediction."""
    notes: tuple[str, ...] = ()
    """Why a kernel that is usual on the device is not taken."""

    @property
    def data_parallel(self) -> int:
        """Replicas that see different rows."""
        return self.workers // (self.tensor_parallel * self.pipeline_parallel * self.context_parallel)

    @property
    def global_batch(self) -> int:
        return self.micro_batch * self.grad_accum * self.data_parallel

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"memory": asdict(self.memory) | {"total_gb": self.memory.total_gb}}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Plan:
        memory = {k: v for k, v in values["memory"].items() if k != "total_gb"}
        predicted = values.get("speed")
        speed = Speed(**{**predicted, "terms": StepTime(**predicted["terms"])}) if predicted else None
        return cls(**{**values, "memory": Memory(**memory), "speed": speed, "notes": tuple(values.get("notes", ()))})
