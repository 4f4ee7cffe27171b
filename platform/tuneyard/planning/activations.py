"""Activation memory: tensors that autograd saves for backward in each decoder layer of transformers 5, and tensors around the loss.

The counting follows Korthikanti et al. 2022 (section 4), which has 34 sbh + 5 a s^2 b bytes a layer for GPT with fp16.
"""

from __future__ import annotations

from tuneyard.catalog import ModelShape, has_fused_loss
from tuneyard.planning.context import slice_tokens
from tuneyard.planning.setup import BYTES, Setup
from tuneyard.planning.tensor import heads_divide, logits_are_cut

_LOSS_COPIES = 12
"""Bytes per logit in the backward pass of cross-entropy: log-softmax, its gradient, and the gradient of its input, each in fp32."""
_FUSED_COPIES = 8
"""Bytes per logit with fms-acceleration's fused cross-entropy: the fp32 copy, which becomes the gradient, and four more bytes. Read off its
Mistral and Llama-3 rows (benchmarks/memory.py), not off its source.
"""

CHUNK_ELEMENTS = 1 << 24
"""Logits of preference pairs whose probabilities are computed at once."""


def tokens_of(setup: Setup) -> int:
    """Tokens of one rank in one forward pass. Preference training reads a chosen and a rejected row at once."""
    return setup.layout.micro_batch * slice_tokens(setup) * (2 if setup.objective == "dpo" else 1)


def layer_bytes(setup: Setup) -> float:
    """Bytes that one layer saves when it is not recomputed."""
    shape, layout = setup.shape, setup.layout
    width, tokens, tensor = BYTES[layout.precision], tokens_of(setup), layout.tensor_parallel
    queries, values = shape.heads * shape.head_dim, shape.heads * shape.value_dim
    # Flash attention reads grouped heads as they are. The other implementations repeat them for each query head.
    heads = shape.kv_heads if layout.attention == "flash" else shape.heads
    keys = heads * (shape.head_dim + shape.value_dim)
    attention = (queries + keys + values) / (tensor if _heads_are_divided(setup) else 1)
    inside = (attention + (4 if shape.gated else 2) * inner_width(shape) / tensor) * width
    # Two norms. Each saves its output, its normalised input, and an fp32 copy of its input.
    outside: float = 4 * shape.hidden * width + 2 * shape.hidden * 4
    gathered: float = 0.0
    if layout.engine in ("megatron", "nanotron"):
        outside = 4.0 * shape.hidden * width  # fused norms keep their input as it is
    if layout.sequence_parallel:
        if layout.is_ours or layout.engine == "nanotron":
            gathered = 2 * shape.hidden * width  # the whole inputs of query-key-value and of the feed-forward
            outside -= gathered
        outside /= tensor
    saved = tokens * (inside + outside + gathered)
    if layout.attention == "eager":
        # Softmax is kept in fp32 and in the compute dtype.
        saved += tokens * shape.heads / (tensor if _heads_are_divided(setup) else 1) * layout.seq_len * (4 + width)
    if setup.is_masked:
        saved += tokens * layout.seq_len * width  # each layer keeps the mask as numbers that are added to the scores
    return saved


def _heads_are_divided(setup: Setup) -> bool:
    """Whether attention heads divide over the ranks. Otherwise every rank runs whole attention on gathered queries, keys and values."""
    layout = setup.layout
    return not layout.is_ours or layout.tensor_parallel == 1 or heads_divide(setup.shape, layout.tensor_parallel)


def checkpoint_bytes(setup: Setup) -> float:
    """Bytes that a recomputed layer saves: its input."""
    layout = setup.layout
    split = layout.tensor_parallel if layout.sequence_parallel else 1
    return tokens_of(setup) * setup.shape.hidden * (4 if layout.fp32_residual else BYTES[layout.precision]) / split


def transient_bytes(setup: Setup) -> float:
    """Bytes of activation gradients that live at once in the backward pass of a layer: of the feed-forward's two inner tensors, or of the
    keys.
    """
    width = BYTES[setup.layout.precision]
    return tokens_of(setup) * (2 * inner_width(setup.shape) / setup.layout.tensor_parallel + setup.shape.hidden) * width


def loss_bytes(setup: Setup) -> float:
    """Bytes around the loss: the model's logits, cross-entropy in fp32, and the last hidden states."""
    shape, layout = setup.shape, setup.layout
    width, tokens = BYTES[layout.precision], tokens_of(setup)
    hidden = 3 * shape.hidden * width
    if layout.liger and has_fused_loss(shape.model_type) and setup.objective != "dpo":
        return tokens * hidden  # the fused loss works in chunks
    if layout.engine in ("megatron", "nanotron"):
        # Vocabulary-parallel: the fp32 copy becomes the softmax; nanotron makes another copy.
        copies = 4 if layout.engine == "megatron" else 8
        return tokens * (hidden + shape.vocab * (width + copies) / layout.tensor_parallel)
    copies = _FUSED_COPIES if layout.fused_loss else _LOSS_COPIES
    logits: float = width
    if layout.engine == "fsdp" and layout.zero == 3:
        copies -= 4  # no fp32 copy beside the logits; read off the rows of fms-acceleration, not off FSDP's source
    elif layout.engine == "deepspeed" and layout.zero == 0 and width < 4:
        logits = 4  # accelerate returns an fp32 copy under autocast
    whole = layout.is_ours and layout.tensor_parallel > 1 and not logits_are_cut(shape, layout.tensor_parallel)
    vocabulary = shape.vocab / (1 if whole else layout.tensor_parallel)
    if setup.objective == "dpo":  # the logits and their gradient; probabilities are computed in chunks, with three fp32 copies of each
        return tokens * (hidden + vocabulary * 2 * logits) + 3 * 4 * min(tokens * vocabulary, CHUNK_ELEMENTS)
    return tokens * (hidden + vocabulary * (logits + copies))


def inner_width(shape: ModelShape) -> int:
    """Feed-forward elements per token: those of its routed experts and of the shared experts."""
    return shape.experts_per_token * shape.expert_ffn + shape.shared_ffn if shape.experts else shape.ffn
