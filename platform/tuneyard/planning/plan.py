"""A plan: parallel layout, batch sizes and memory options of one task on one placement. Every `auto` is decided in it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Memory:
    """Peak memory of one rank by what holds it, in 1e9 bytes. The terms add up to `total_gb`."""

    weights_gb: float = 0.0
    gradients_gb: float = 0.0
    optimizer_gb: float = 0.0
    activations_gb: float = 0.0
    other_gb: float = 0.0

    @property
    def total_gb(self) -> float:
        return self.weights_gb + self.gradients_gb + self.optimizer_gb + self.activations_gb + self.other_gb


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a train task runs: nothing is `auto` any more. `global_batch == micro_batch * grad_accum * workers`."""

    sku: str
    workers: int
    zero: Literal[0, 1, 2, 3]
    offload_optimizer: Literal["none", "cpu", "nvme"] = "none"
    offload_parameters: Literal["none", "cpu", "nvme"] = "none"
    nvme_path: str = "/tmp/tuneyard-nvme"
    tensor_parallel: int = 1
    recompute: bool = False
    precision: Literal["bf16", "fp16", "fp32"]
    attention: Literal["flash", "sdpa", "eager"]
    liger: bool = False
    micro_batch: int
    grad_accum: int
    memory: Memory = field(default_factory=Memory)
    host_memory_gb: float = 0.0
    fits: bool = True

    @property
    def global_batch(self) -> int:
        return self.micro_batch * self.grad_accum * self.workers

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"memory": asdict(self.memory) | {"total_gb": self.memory.total_gb}}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Plan:
        memory = {k: v for k, v in values["memory"].items() if k != "total_gb"}
        return cls(**{**values, "memory": Memory(**memory)})
