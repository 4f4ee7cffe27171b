"""A training step, by all properties that determine its memory and speed: model, device, method and layout, for any training engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tuneyard.api import Method, TrainTask
from tuneyard.api.train import Full
from tuneyard.catalog import Gpu, ModelShape

Precision = Literal["bf16", "fp16", "fp32"]
BYTES: dict[Precision, int] = {"bf16": 2, "fp16": 2, "fp32": 4}
Attention = Literal["flash", "sdpa", "eager"]
Place = Literal["none", "cpu", "nvme"]
Engine = Literal["deepspeed", "fsdp", "megatron", "nanotron"]
"""The engine that keeps the states.

- `deepspeed`: fp32 masters beside 16-bit weights.
- `fsdp`: FSDP and plain torch under HF Trainer; weights and states in the dtype in which they were loaded.
- `megatron`: Megatron-LM, a pre-training stack with its own tensor and pipeline parallelism.
- `nanotron`: likewise; keeps the results of tensor-parallel gathers for backward, and 16-bit gradients beside the fp32 ones.
"""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Layout of a step over `workers` devices: `data_parallel * tensor_parallel * pipeline_parallel * context_parallel`."""

    workers: int
    zero: Literal[0, 1, 2, 3]
    precision: Precision
    attention: Attention
    micro_batch: int
    """Rows of one rank in one forward pass."""
    seq_len: int
    grad_accum: int = 1
    recompute: bool = False
    liger: bool = False
    """A fused loss that keeps no logits."""
    compiled: bool = False
    """Decoder layers are compiled: their elementwise kernels are fused, as Liger's are."""
    offload_optimizer: Place = "none"
    offload_parameters: Place = "none"
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    sequence_parallel: bool = False
    """Activations outside of the matmuls are also split over the tensor-parallel ranks (Korthikanti et al. 2022)."""
    context_parallel: int = 1
    """Ranks that split each row along its tokens."""
    shard_within: Literal["none", "host"] = "none"
    """`host`: ZeRO-3 shards over the ranks of a host, and replicates across hosts."""
    quantised_all_reduce: Literal["none", "int8", "fp8"] = "none"
    engine: Engine = "deepspeed"
    divides_all: bool = False
    """Tensor-parallel ranks hold equal shares of everything, logits too, as in other engines that use DeepSpeed's ZeRO (InternEvo)."""
    fused_loss: bool = False
    """A cross-entropy that writes its gradient over the logits (Unsloth's, FMS's kernels): it keeps the logits, but no copies."""
    mixed_precision: bool = True
    """Under FSDP: trained weights are kept in fp32 and cast for each pass, as in accelerate since 0.27. False: kept in the loaded dtype."""
    fp32_residual: bool = False
    """Hidden states between layers are fp32: PEFT's `prepare_model_for_kbit_training`, and adapters under FSDP with mixed precision."""

    @property
    def is_ours(self) -> bool:
        """Whether `tensor` describes the tensor-parallel shares and exchanges, as in training here. False: another engine divides."""
        return self.engine == "deepspeed" and not self.divides_all

    @property
    def data_parallel(self) -> int:
        """Replicas that see different rows."""
        return self.workers // (self.tensor_parallel * self.pipeline_parallel * self.context_parallel)

    @property
    def gradient_ranks(self) -> int:
        """Ranks that hold the same weights. Gradients are summed, and ZeRO shards, over these."""
        return self.data_parallel * self.context_parallel


@dataclass(frozen=True, kw_only=True)
class Setup:
    """A step on a device. `network_gb_s`: a machine's rate to and from others, in 1e9 bytes a second; None: that of the SKU's usual
    machines.
    """

    shape: ModelShape
    gpu: Gpu
    layout: Layout
    method: Method = field(default_factory=lambda: Method(full=Full()))
    optimizer: str = "adamw"
    optimizer_states: Literal["fp32", "bf16"] = "fp32"
    objective: Literal["sft", "clm", "dpo"] = "sft"
    gpus_per_node: int = 8
    network_gb_s: float | None = None
    packed: bool = False
    """Rows hold several samples."""

    @classmethod
    def of(cls, task: TrainTask, shape: ModelShape, gpu: Gpu, layout: Layout) -> Setup:
        """The setup of a train task with this layout."""
        return cls(
            shape=shape,
            gpu=gpu,
            layout=layout,
            method=task.method,
            optimizer=task.optimizer.name,
            optimizer_states=task.optimizer.states,
            objective=task.objective,
            packed=task.data.pack,
        )

    @property
    def is_masked(self) -> bool:
        """Whether sdpa gets a mask, for packed or padded rows. torch then computes the whole square of a row. Slices of rows need none."""
        layout = self.layout
        several = self.packed or layout.micro_batch > 1 or self.objective == "dpo"
        return layout.attention == "sdpa" and several and layout.context_parallel == 1 and not self.gpu.is_cpu

    @property
    def ranks_per_host(self) -> int:
        """Ranks of one host. Ranks on `cpu` share one machine, unless the network between several machines is given."""
        return self.layout.workers if self.gpu.is_cpu and self.network_gb_s is None else self.gpus_per_node

    @property
    def shards(self) -> int:
        """Ranks over which ZeRO shards."""
        replicas = max(1, self.layout.gradient_ranks)
        return min(replicas, self.ranks_per_host) if self.layout.shard_within == "host" else replicas
