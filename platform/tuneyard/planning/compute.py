"""Compute time of one rank for one micro-batch: seconds of matmuls, attention and memory traffic by a roofline (Williams et al. 2009).

FLOPs are the catalog's hardware FLOPs. A matmul of m rows whose narrower side is n wide on this rank reaches

    peak * matmul * m / (m + matmul_tokens) * n / (n + matmul_width)

FLOP/s, which saturates as tiles fill the device. The FLOPs of elementwise work (norms, residuals, rotary embeddings, activations, the loss)
are negligible: its time is the bytes that unfused kernels read and write, over memory bandwidth.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tuneyard.api import Method
from tuneyard.catalog import ModelShape, adapted_projections, has_fused_loss, train_flops, trainable_parameters
from tuneyard.catalog.flops import attention_forward_flops
from tuneyard.planning.calibration import Efficiency
from tuneyard.planning.context import slice_tokens
from tuneyard.planning.setup import BYTES, Attention, Setup

_KERNELS_FORWARD = 26
"""Kernels that transformers launches in the forward pass of a layer: about 9 matmuls and attention, the rest elementwise."""
_KERNELS_FORWARD_LIGER = 16
_ADAPTER_KERNELS = 5
"""Additional kernels per adapted matrix: cast, A, B, scale, add."""
_QUANTIZED_KERNELS = 2


@dataclass(frozen=True)
class ModelWork:
    """Work of a model and a method on rows of one length. It is computed once for all layouts.

    FLOPs are per row of `seq_len` tokens: `model_flops` by the convention of MFU, the others as executed.
    """

    model_flops: float
    matmul_flops: float
    attention_flops: float
    parameters: int
    body_parameters: int
    """Parameters without embedding and head."""
    trained: int
    head_share: float
    """Share of the matmul FLOPs."""
    adapted_per_layer: float
    """Matrices with an adapter per layer."""
    adapter_elements: float
    """Elements per token and layer that adapters read and write beside the frozen matmuls (input; low-rank product, sum)."""


@dataclass(frozen=True)
class Work:
    """Seconds of one micro-batch over all layers, on one tensor-parallel rank. `head_s` is the part of the head and the loss."""

    matmul_s: float
    attention_s: float
    traffic_s: float
    kernels: float
    head_s: float
    backward_share: float
    model: ModelWork

    @property
    def total_s(self) -> float:
        return self.matmul_s + self.attention_s + self.traffic_s


def work_of(setup: Setup, efficiency: Efficiency) -> Work:
    """The compute of one micro-batch. Raises BadInput where the device cannot compute in the precision."""
    layout, shape, gpu = setup.layout, setup.shape, setup.gpu
    rows, degree = rows_of(setup), layout.tensor_parallel
    tokens = rows * slice_tokens(setup)
    ranks = degree * layout.context_parallel  # ranks that share the work of a row
    peak = gpu.rank_peak_flops(layout.precision, layout.workers)  # also for fp32: torch leaves TF32 off
    model = model_work(setup)
    bandwidth = gpu.memory_bandwidth_gb_s * 1e9 * efficiency.memory / (layout.workers if gpu.is_cpu else 1)
    body, head = _slowdowns(shape, degree, tokens, efficiency.matmul_tokens, efficiency.matmul_width)
    reference = 4 / 3 if setup.objective == "dpo" else 1.0  # the reference's forward pass
    matmul = rows * model.matmul_flops * reference / ranks / (peak * efficiency.matmul)
    share = model.head_share
    head_matmul = matmul * share * head
    body_matmul = matmul * (1 - share) * body
    attention = rows * model.attention_flops * reference / ranks / (peak * efficiency.attention)
    traffic, head_traffic = _traffic_bytes(setup, model, tokens)
    return Work(
        matmul_s=body_matmul + head_matmul,
        attention_s=attention,
        traffic_s=(traffic + head_traffic) * reference / bandwidth,
        kernels=_kernels(setup, model),
        head_s=head_matmul + head_traffic * reference / bandwidth,
        backward_share=0.75 if layout.recompute else 2 / 3,
        model=model,
    )


def rows_of(setup: Setup) -> int:
    """Rows that a rank passes through the model in a micro-batch. A preference pair is two rows."""
    return setup.layout.micro_batch * (2 if setup.objective == "dpo" else 1)


def model_work(setup: Setup) -> ModelWork:
    layout = setup.layout
    kernel: Attention = "sdpa" if setup.is_masked else "eager" if layout.attention == "eager" else "flash"
    return _model_work(setup.shape, setup.method.model_dump_json(), layout.seq_len, layout.recompute, kernel)


@lru_cache(maxsize=4096)
def _model_work(shape: ModelShape, method: str, seq_len: int, recompute: bool, kernel: Attention) -> ModelWork:
    """`kernel`: flash skips the masked half of causal attention and computes scores twice. sdpa (with a mask) computes all scores twice,
    eager attention once.
    """
    parsed = Method.model_validate_json(method)
    causal = kernel == "flash"
    executed = train_flops(
        shape, tokens=seq_len, seq_len=seq_len, method=parsed, recompute=recompute, attention=kernel, causal=causal
    ).hardware
    forward = attention_forward_flops(shape, [seq_len], causal=causal, window=causal)
    attention = forward * (1 + (2.0 if kernel == "eager" else 2.5) + recompute)
    adapted = adapted_projections(shape, parsed.adapter) if parsed.adapter else frozenset()
    return ModelWork(
        model_flops=train_flops(shape, tokens=seq_len, seq_len=seq_len, method=parsed).model,
        matmul_flops=max(0.0, executed - attention),
        attention_flops=attention,
        parameters=shape.parameters,
        body_parameters=sum(p.parameters for p in shape.projections if p.stage != "head"),
        trained=trainable_parameters(shape, parsed),
        head_share=shape.head.weights / shape.linear_parameters,
        adapted_per_layer=sum(p.layers for p in adapted) / shape.layers,
        adapter_elements=sum(p.active * p.layers * (p.inputs + 3 * p.outputs) for p in adapted) / shape.layers,
    )


@lru_cache(maxsize=4096)
def _slowdowns(shape: ModelShape, degree: int, tokens: int, half_tokens: float, half_width: float) -> tuple[float, float]:
    """Slowdown of the matmuls of the body and of the head against full efficiency: means weighted by FLOPs."""
    total, weighted = 0.0, 0.0
    for p in shape.projections[:-1]:
        rows = tokens * p.active / p.copies
        # Tensor parallelism divides the outputs of a block's first matmuls, and the inputs of its last.
        sides = (p.inputs / degree, p.outputs) if p.stage in ("output", "down") else (p.inputs, p.outputs / degree)
        total += p.active_weights
        weighted += p.active_weights * (1 + half_tokens / rows) * (1 + half_width / min(sides))
    head = (1 + half_tokens / tokens) * (1 + half_width / min(shape.head.inputs, shape.head.outputs / degree))
    return weighted / total, head


def _traffic_bytes(setup: Setup, model: ModelWork, tokens: int) -> tuple[float, float]:
    """Bytes that elementwise kernels of all layers move in a micro-batch, forward and backward, and bytes that the loss moves."""
    layout, shape = setup.layout, setup.shape
    width, degree = BYTES[layout.precision], layout.tensor_parallel
    fused = layout.liger or layout.compiled or layout.engine in ("megatron", "nanotron")
    inner = shape.experts_per_token * shape.expert_ffn + shape.shared_ffn if shape.experts else shape.ffn
    stream = (8 if fused else 18) * shape.hidden / (degree if layout.sequence_parallel else 1)
    blocks = (4 if fused else 8) * (shape.heads + shape.kv_heads) * shape.head_dim + (3 if fused else 5 if shape.gated else 4) * inner
    passes = 4 if layout.recompute else 3
    per_token = passes * width * (stream + blocks / degree) + 3 * width * model.adapter_elements
    moved = shape.layers * tokens * per_token + _weight_bytes(setup, model, width)
    if layout.attention == "eager":
        moved += passes * shape.layers * rows_of(setup) * shape.heads / degree * layout.seq_len**2 * (3 * width + 8)
    fused_loss = layout.fused_loss or (layout.liger and has_fused_loss(shape.model_type))
    logits = tokens * shape.vocab / degree * (3 * width if fused_loss else 4 * width + 24)
    return moved, logits


def _weight_bytes(setup: Setup, model: ModelWork, width: int) -> float:
    """Bytes of weights that are unpacked from 4 bits before each matmul (read, write, read again), or whose norms DoRA computes."""
    layout = setup.layout
    body = model.body_parameters / layout.tensor_parallel
    passes = 3 if layout.recompute else 2
    if setup.method.qlora is not None:
        # Unpacking looks up a table for each element, and reaches a third of the bandwidth.
        return body * passes * 3 * (0.5 + 2 * width)
    if setup.method.dora is not None:
        return body * (passes - 1) * 4 * width
    if layout.zero == 0 and layout.engine == "deepspeed" and width < 4 and setup.method.adapter is None:
        return body * (4 + width)  # autocast copies fp32 weights once per micro-batch
    return 0.0


def _kernels(setup: Setup, model: ModelWork) -> float:
    """Kernels launched for a micro-batch over all layers, including backward (two per forward kernel) and recomputation."""
    layout, shape = setup.layout, setup.shape
    forward = float(_KERNELS_FORWARD_LIGER if layout.liger or layout.compiled else _KERNELS_FORWARD)
    forward += 8 * shape.experts if shape.experts else 0
    forward += _ADAPTER_KERNELS * model.adapted_per_layer
    if setup.method.qlora is not None:
        forward += _QUANTIZED_KERNELS * 7
    return shape.layers * forward * (4 if layout.recompute else 3)
