"""Peak memory of one rank, before anything runs: a first version, from dimensions and the dtypes that the libraries keep.

Weights, gradients and optimizer states follow Rajbhandari et al. 2020 (ZeRO, section 3) with the dtypes of DeepSpeed 0.19, PEFT 0.21 and
bitsandbytes 0.50; activations count what autograd saves in a transformers 5 decoder layer, in the manner of Korthikanti et al. 2022
(section 4), which has 34 sbh + 5 a s^2 b bytes for GPT. Terms are in bytes until the end.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuneyard.catalog import ModelShape, trainable_parameters
from tuneyard.planning.plan import Memory
from tuneyard.planning.setup import Layout, Setup

BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
STATE_BYTES = {"adamw": 8.0, "adamw-8bit": 2.0, "adafactor": 0.1, "sgd": 0.0}
"""Per trained parameter: two fp32 moments; two of 8 bits; a row and a column of second moments; nothing."""
BUCKET_ELEMENTS = 50_000_000
"""As in training's DeepSpeed configuration, for reduction and for gathering."""
GPU_CONTEXT_GB = 1.0
"""CUDA context, cuBLAS workspaces, NCCL buffers: a reserve, not a measurement."""
FRAGMENTATION = 0.05
"""Share of activations that the caching allocator cannot reuse: a reserve, not a measurement."""
CPU_PROCESS_GB = 0.94
"""Resident memory of a process that has loaded torch 2.13, transformers, TRL, PEFT and DeepSpeed, and no model: measured on Linux."""


@dataclass(frozen=True)
class Estimate:
    device: Memory
    host_gb: float
    """Host memory that offloading takes per rank, beside the device's."""


def estimate_memory(setup: Setup) -> Estimate:
    """Peak memory of one rank. On `cpu` everything, offloaded or not, is in the process: nothing is on another host."""
    task, shape, gpu, layout = setup, setup.shape, setup.gpu, setup.layout
    trained = trainable_parameters(shape, setup.method)
    states = _States(task, shape, layout, trained)
    activations = _activations(task, shape, layout)
    gathered = _gathered(task, shape, layout)
    offloaded = states.host_bytes
    if gpu.is_cpu:
        other = CPU_PROCESS_GB * 1e9 + _buckets(layout, trained) + gathered + offloaded
    else:
        other = GPU_CONTEXT_GB * 1e9 + FRAGMENTATION * activations + _buckets(layout, trained) + gathered
    memory = Memory(
        weights_gb=states.weights / 1e9,
        gradients_gb=states.gradients / 1e9,
        optimizer_gb=states.optimizer / 1e9,
        activations_gb=activations / 1e9,
        other_gb=other / 1e9,
    )
    return Estimate(memory, 0.0 if gpu.is_cpu else offloaded / 1e9)


class _States:
    """Bytes of weights, gradients and optimizer states on the device, and of what is offloaded to the host."""

    def __init__(self, task: Setup, shape: ModelShape, layout: Layout, trained: int) -> None:
        width, workers = BYTES[layout.precision], layout.workers
        frozen = 0 if task.method.adapter is None else shape.parameters
        # DeepSpeed keeps fp32 masters, in fp32 training too; without it, what is trained is fp32 itself.
        trained_width = width if layout.zero else 4
        weights = trained * trained_width + _frozen_bytes(task, shape, width)
        gradients = float(trained * trained_width)
        optimizer = trained * (STATE_BYTES[task.optimizer] + (4 if layout.zero else 0))
        if layout.zero >= 1:
            optimizer /= workers
        if layout.zero >= 2:
            gradients /= workers
        if layout.zero and width < 4:
            # The step takes an fp32 copy of this rank's gradients.
            gradients += 4 * trained / workers
        if layout.zero == 3:
            weights /= workers
        if task.objective == "dpo" and not frozen:
            weights += shape.parameters * width
        self.host_bytes = 0.0
        if layout.offload_optimizer != "none":
            self.host_bytes += (optimizer + 4 * trained / workers) * (layout.offload_optimizer == "cpu")
            optimizer = 0.0
            # From stage 2 on, each gradient goes to the host as soon as it is reduced.
            gradients = 0.0 if layout.zero >= 2 else gradients
        if layout.offload_parameters != "none":
            self.host_bytes += weights * (layout.offload_parameters == "cpu")
            weights = 0.0
        self.weights, self.gradients, self.optimizer = weights, gradients, optimizer


def _frozen_bytes(task: Setup, shape: ModelShape, width: int) -> float:
    """Weights that an adapter leaves alone. In 4 bits, bitsandbytes keeps a scale per 64: fp32, or 8 bits with an fp32 per 256 of them.

    It quantises the layers' matrices; embedding, head, norms and fused experts stay as they are.
    """
    if task.method.adapter is None:
        return 0.0
    if task.method.qlora is None:
        return float(shape.parameters * width)
    quantised = sum(p.layers * p.weights for p in shape.projections if p.stage != "head" and not p.stacked)
    scale = (1 + 4 / 256) / 64 if task.method.qlora.double_quantization else 4 / 64
    return quantised * (0.5 + scale) + (shape.parameters - quantised) * width


def _buckets(layout: Layout, trained: int) -> float:
    """Buffers of collectives. DDP copies all gradients into buckets; DeepSpeed has one bucket that fills and one that is on its way."""
    if layout.workers == 1 and layout.zero == 0:
        return 0.0
    if layout.zero == 0:
        return 4.0 * trained
    return 2.0 * min(BUCKET_ELEMENTS, trained) * BYTES[layout.precision]


def _gathered(task: Setup, shape: ModelShape, layout: Layout) -> float:
    """Weights that are whole for the moment: two layers and the head under ZeRO-3; 16-bit copies of matrices under autocast."""
    width = BYTES[layout.precision]
    if layout.zero == 3:
        layer = sum(p.parameters for p in shape.projections if p.stage != "head") / shape.layers
        return (2 * layer + shape.head.weights) * width
    autocast = layout.zero == 0 and width < 4 and task.method.adapter is None
    return float(shape.linear_parameters * width) if autocast else 0.0


def _activations(task: Setup, shape: ModelShape, layout: Layout) -> float:
    """What backward needs of the forward pass, at its peak: all layers (recompute: their inputs, and one layer), and the logits."""
    rows = layout.micro_batch * (2 if task.objective == "dpo" else 1)
    tokens, width = rows * layout.seq_len, BYTES[layout.precision]
    layer = tokens * _layer_bytes_per_token(shape, layout)
    if layout.attention == "eager":
        # Softmax is kept in fp32 and in the compute dtype.
        layer += rows * shape.heads * layout.seq_len**2 * (4 + width)
    kept = shape.layers * tokens * shape.hidden * width + layer if layout.recompute else shape.layers * layer
    return kept + tokens * _logit_bytes_per_token(shape, layout)


def _layer_bytes_per_token(shape: ModelShape, layout: Layout) -> float:
    width = BYTES[layout.precision]
    queries, values = shape.heads * shape.head_dim, shape.heads * shape.value_dim
    # Flash attention reads grouped heads as they are; the others repeat them for each query head.
    keys = (shape.kv_heads if layout.attention == "flash" else shape.heads) * (shape.head_dim + shape.value_dim)
    inner = _inner_width(shape)
    saved = 4 * shape.hidden + queries + keys + values + (4 if shape.gated else 2) * inner
    # Two norms work on fp32 copies of the residual.
    return saved * width + 8 * shape.hidden


def _inner_width(shape: ModelShape) -> int:
    """Feed-forward elements per token: of the experts that it is routed to, and the shared ones."""
    return shape.experts_per_token * shape.expert_ffn + shape.shared_ffn if shape.experts else shape.ffn


def _logit_bytes_per_token(shape: ModelShape, layout: Layout) -> float:
    """Logits, their fp32 copy, log-softmax and its gradient. Liger's fused loss works in chunks and keeps none of them."""
    if layout.liger:
        return 0.0
    width = BYTES[layout.precision]
    return shape.vocab * (12 if width == 4 else 2 * width + 12)
