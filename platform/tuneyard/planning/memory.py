"""Peak memory of one rank, before anything runs: the largest total among the moments of a step, by term.

The candidates for the peak are the loss (all saved activations, and the logits), the backward pass of the last layer, that of the first
layer (all gradients), the optimizer step, and, on cpu, the copy of the states for a checkpoint. Terms that are absent at the peak are 0.
Sizes are bytes until the end.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuneyard.planning.activations import checkpoint_bytes, layer_bytes, loss_bytes, transient_bytes
from tuneyard.planning.exchange import exchange_bytes
from tuneyard.planning.plan import Memory
from tuneyard.planning.setup import BYTES, Setup
from tuneyard.planning.states import States, quantised_width, states_of

BUCKET_ELEMENTS = 50_000_000
"""Size of reduction and gathering buckets in training's DeepSpeed configuration."""
EXCHANGED_ELEMENTS = 4_000_000
"""Size of reduction buckets with `shardWithin: host`."""
GPU_CONTEXT_GB = 1.0
"""CUDA context, cuBLAS workspaces, NCCL buffers: a reserve, not a measurement."""
FRAGMENTATION = 0.05
"""Share of activations that the caching allocator cannot reuse: a reserve, not a measurement."""
LIBRARIES_GB = 0.53
"""Resident memory of a rank on cpu before it loads the model (torch 2.13, transformers, TRL, PEFT, DeepSpeed, gloo), where no rank has
measured it: of forks of a fork server, Linux x86-64, Python 3.11, 2 cores, 2026-11-23. Most of these pages are shared with the server."""


@dataclass(frozen=True)
class Estimate:
    device: Memory
    host_gb: float
    """Host memory that offloading takes per rank, beside the device's memory."""
    reserve_gb: float = 0.0
    """The part of `device.other_gb` that torch does not count as allocated: context and fragmentation."""

    @property
    def allocated_gb(self) -> float:
        """The value that `torch.cuda.max_memory_allocated` will show."""
        return self.device.total_gb - self.reserve_gb


def estimate_memory(setup: Setup, libraries_gb: float = LIBRARIES_GB) -> Estimate:
    """Peak memory of the fullest rank. On `cpu` everything, offloaded or not, is in the process: `host_gb` is 0.

    `libraries_gb`: memory of a rank on `cpu` before it loads the model, in 1e9 bytes. On GPUs, libraries are in host memory, which is not
    counted here; the device memory of CUDA and NCCL is in `other`.
    """
    first = _rank(setup, libraries_gb, last_stage=setup.layout.pipeline_parallel == 1)
    if setup.layout.pipeline_parallel == 1:
        return first
    last = _rank(setup, libraries_gb, last_stage=True)
    return max(first, last, key=lambda each: each.device.total_gb)


def _rank(setup: Setup, libraries_gb: float, *, last_stage: bool) -> Estimate:
    states = states_of(setup, last_stage=last_stage)
    fullest = max(_moments(setup, states, last_stage=last_stage), key=lambda each: each.total)
    if setup.gpu.is_cpu:
        reserve, fixed = 0.0, states.host
    else:
        reserve = fixed = GPU_CONTEXT_GB * 1e9 + FRAGMENTATION * fullest.activations
    memory = Memory(
        weights_gb=states.weights / 1e9,
        gradients_gb=fullest.gradients / 1e9,
        optimizer_gb=states.optimizer / 1e9,
        optimizer_step_gb=fullest.step / 1e9,
        activations_gb=fullest.activations / 1e9,
        libraries_gb=libraries_gb if setup.gpu.is_cpu else 0.0,
        other_gb=(fullest.other + fixed) / 1e9,
    )
    return Estimate(memory, 0.0 if setup.gpu.is_cpu else states.host / 1e9, reserve / 1e9)


@dataclass(frozen=True)
class _Moment:
    """Bytes of the parts that change in the course of a step. `fixed`: weights and optimizer states."""

    fixed: float
    gradients: float
    activations: float
    other: float
    step: float = 0.0
    """Extra memory of the optimizer step, beside the states."""

    @property
    def total(self) -> float:
        return self.fixed + self.gradients + self.activations + self.other + self.step


def _moments(setup: Setup, states: States, *, last_stage: bool) -> list[_Moment]:
    shape, layout = setup.shape, setup.layout
    fixed = states.weights + states.optimizer
    layers = -(-shape.layers // layout.pipeline_parallel)
    layer, saved = layer_bytes(setup), checkpoint_bytes(setup) if layout.recompute else layer_bytes(setup)
    # 1F1B: a stage holds one micro-batch per later stage and its own (Narayanan et al. 2021, 2.2).
    in_flight = 1 if last_stage else min(layout.pipeline_parallel, layout.grad_accum)
    kept = layers * saved * in_flight
    alive = (layer if layout.recompute else 0.0) + transient_bytes(setup)
    # Gradients of earlier micro-batches, and gradient buffers that exist from the start.
    before = states.gradients if layout.grad_accum > 1 or layout.engine in ("megatron", "nanotron") else 0.0
    buckets = _buckets(setup, states) + exchange_bytes(setup, states.trained)
    gathered, root = _gathered(setup, states)
    # Where each layer owns its gradients, those of the last layer replace its activations during its backward pass.
    on_host = setup.gpu.is_cpu and layout.engine == "deepspeed"
    return [
        *([_Moment(fixed, 0.0, 0.0, buckets + states.snapshot)] if on_host else []),
        _Moment(fixed, before, kept + (loss_bytes(setup) if last_stage else 0.0), buckets + max(root, gathered)),
        _Moment(fixed, before, kept + alive, buckets + gathered),
        _Moment(fixed, states.gradients, kept / max(1, layers) + alive, buckets + gathered),
        _Moment(fixed, states.gradients, 0.0, buckets, states.step),
    ]


def _buckets(setup: Setup, states: States) -> float:
    """Bytes of the buffers of collectives.

    DDP copies all gradients into buckets. DeepSpeed allocates whole buckets, however few parameters are trained: one that fills, and under
    ZeRO 1 and 2 with overlap (on GPUs) one in flight (0.19: `setup_buckets` of `stage_1_and_2.py`, `IPG` of `stage3.py`). Pages that were
    never written take no memory: on cpu a bucket is no larger than the trained parameters.
    """
    layout = setup.layout
    if layout.engine == "fsdp" or (layout.gradient_ranks <= 1 and layout.zero == 0):
        return 0.0
    if layout.engine in ("megatron", "nanotron"):
        return 0.0  # the fp32 gradient buffer itself is reduced
    if layout.zero == 0:
        return 4.0 * states.trained
    width = BYTES[layout.precision]
    elements = EXCHANGED_ELEMENTS if layout.shard_within == "host" else BUCKET_ELEMENTS
    if setup.gpu.is_cpu:
        return min(elements, states.trained) * width
    return elements * width * (1.0 if layout.zero == 3 else 2.0)


def _gathered(setup: Setup, states: States) -> tuple[float, float]:
    """Bytes of weights that are temporarily whole, in layers and around the loss: two layers, embedding and head where they are sharded;
    16-bit copies of matrices under autocast.
    """
    shape, layout, width = setup.shape, setup.layout, states.parameter_width
    if layout.zero == 3 and setup.shards > 1:
        inner = shape.parameters - shape.embedding_parameters - (0 if shape.tied else shape.head.weights)
        qlora = setup.method.qlora
        layer = inner / shape.layers * (quantised_width(scales_too=qlora.double_quantization) if qlora is not None else width)
        root = (shape.embedding_parameters + (0 if shape.tied else shape.head.weights)) * width
        # FSDP keeps the root unit whole from its forward pass to its backward pass; DeepSpeed gathers each weight separately.
        if layout.engine == "fsdp":
            return 2 * layer + root, root
        return 2 * layer, shape.head.weights * width
    autocast = layout.engine == "deepspeed" and layout.zero == 0 and width < 4 and setup.method.adapter is None
    copies = float(shape.linear_parameters * width) if autocast else 0.0
    return copies, copies
