"""FLOPs of training and of generation, from a model's shape alone. A multiply-add is two.

Per token and matrix of N elements: 2N forward, 2N for the gradient of its input, 2N for its own (Kaplan et al. 2020, 2.1). Attention
between T queries and their contexts of S keys: 2 T S (d_qk + d_v) per head forward, twice that backward (PaLM, Chowdhery et al. 2022,
appendix B: 12 L H Q T per token for both). Elementwise work, softmax and norms count nothing. docs/mfu.md has the conventions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tuneyard.api import Adapter, Method
from tuneyard.catalog.adapters import adapted_projections, saved_projections, trains_embedding
from tuneyard.catalog.shapes import ModelShape, Projection

Attention = Literal["flash", "sdpa", "eager"]
FULL = Method.model_validate({"full": {}})
FOLDS_FORWARD = 2
"""Executions of the fold per forward pass: PEFT registers the folded weight anew, and torch's parametrize computes it again to check its
shape.
"""


@dataclass(frozen=True)
class Flops:
    """`model`: FLOPs of the mathematics, for MFU. `hardware`: executed FLOPs, including recomputation (HFU)."""

    model: float
    hardware: float


def train_flops(
    shape: ModelShape,
    *,
    tokens: int,
    seq_len: int,
    method: Method = FULL,
    recompute: bool = False,
    attention: Attention = "eager",
    causal: bool = False,
    document_lengths: Sequence[int] | None = None,
    passes: int = 1,
) -> Flops:
    """FLOPs of one forward and backward pass over `tokens` tokens, in rows of `seq_len`; both include padding.

    `method`: the trained weights. `recompute`: activation checkpointing of each layer. `causal`: count only the keys that a query may see,
    half of them; default: all, as PaLM does. `document_lengths`: lengths of the packed documents, which do not see each other; their sum is
    at most `tokens`. `passes`: forward passes over which the tokens are split, which matters for hardware FLOPs if PEFT computes with whole
    weight matrices in each pass (DoRA, adapters on fused experts).
    """
    work = _Training(shape, method, flows_to_embedding=trains_embedding(shape, method))
    # With recomputation, transformers makes the embedding's output require gradients, so that they flow through the first layer too.
    executed = _Training(shape, method, flows_to_embedding=True) if recompute else work
    documents = document_lengths if document_lengths is not None else _rows(tokens, seq_len)
    needed = attention_forward_flops(shape, documents, causal=causal)
    model = tokens * work.per_token + needed * (1 + 2 * work.attention_backward_share)
    # Eager and sdpa compute the masked part of each row as well; a flash kernel skips other documents.
    run = needed if attention == "flash" else attention_forward_flops(shape, _rows(tokens, seq_len), causal=False, window=False)
    # Fused kernels recompute the scores in backward: 2.5 times forward instead of 2 (FlashAttention-2, Dao 2023, 3.1).
    backward = 2.0 if attention == "eager" else 2.5
    hardware = tokens * executed.per_token + run * (1 + backward * executed.attention_backward_share) + executed.folding(tokens, passes)
    if recompute:
        hardware += tokens * executed.rerun_per_token + run + executed.folding_again(tokens, passes)
    return Flops(model=float(model), hardware=float(hardware))


def forward_flops(
    shape: ModelShape,
    *,
    prompt_lengths: Sequence[int],
    output_lengths: Sequence[int],
    adapter: Adapter | None = None,
    prompt_logits: bool = False,
    causal: bool = False,
) -> float:
    """FLOPs of generating with a KV cache: each prompt in one pass, then one pass per token after the first.

    The head is applied once per generated token, and with `prompt_logits` (perplexity) also to all prompt tokens. A decoded token sees the
    tokens before it, `causal` or not; `causal` applies to prompts. Raises ValueError if the two lists differ in length.
    """
    rows = list(zip(prompt_lengths, output_lengths, strict=True))
    adapted = adapted_projections(shape, adapter) if adapter else frozenset[Projection]()
    body, head = 0, 0
    for p in shape.projections:
        per_token = p.layers * p.active * (p.weights + (p.adapter_weights(adapter.rank) if adapter and p in adapted else 0))
        head, body = (head + per_token, body) if p.stage == "head" else (head, body + per_token)
    processed = sum(prompt + max(output - 1, 0) for prompt, output in rows)
    heads = sum(output for _, output in rows) + (sum(prompt for prompt, _ in rows) if prompt_logits else 0)
    decoded = sum(_decode_pairs(shape, prompt, output) for prompt, output in rows)
    prefill = attention_forward_flops(shape, [prompt for prompt, _ in rows], causal=causal)
    return float(2 * body * processed + 2 * head * heads + prefill + _flops_per_pair(shape) * decoded)


def attention_forward_flops(shape: ModelShape, lengths: Sequence[int], *, causal: bool, window: bool = True) -> float:
    """FLOPs of Q K^T and of their product with V over all layers, for sequences of these lengths that do not see each other."""
    full_layers = shape.layers - (shape.sliding_layers if window else 0)
    pairs = sum(
        full_layers * _pairs(length, None, causal) + (shape.layers - full_layers) * _pairs(length, shape.sliding_window, causal)
        for length in lengths
    )
    return _flops_per_pair(shape) * pairs


def _flops_per_pair(shape: ModelShape) -> int:
    """FLOPs of one query with one key, over the heads of one layer."""
    return 2 * shape.heads * (shape.head_dim + shape.value_dim)


def _pairs(length: int, window: int | None, causal: bool) -> int:
    """Query-key pairs of one sequence; each query sees at most `window` keys."""
    reach = min(length, window or length)
    if not causal:
        return length * reach
    return reach * (reach + 1) // 2 + (length - reach) * reach


def _decode_pairs(shape: ModelShape, prompt: int, output: int) -> int:
    """Query-key pairs of the tokens after the first, over all layers."""
    full = shape.layers - shape.sliding_layers
    return sum(
        full * context + shape.sliding_layers * min(context, shape.sliding_window or context)
        for context in range(prompt + 1, prompt + output)
    )


def _rows(tokens: int, seq_len: int) -> list[int]:
    """`tokens` in rows of `seq_len`, the last one shorter."""
    whole, rest = divmod(tokens, seq_len)
    return [seq_len] * whole + ([rest] if rest else [])


class _Training:
    """Computation of one training pass of a method, per token."""

    def __init__(self, shape: ModelShape, method: Method, *, flows_to_embedding: bool) -> None:
        self._shape = shape
        self._method = method
        adapter = method.adapter
        self._rank = adapter.rank if adapter else 0
        self._adapted = adapted_projections(shape, adapter) if adapter else frozenset[Projection]()
        self._trained = saved_projections(shape, adapter) if adapter else frozenset(shape.projections)
        self._reached = _gradients_in_first_layer(shape, self._adapted | self._trained, flows_to_embedding)

    @property
    def attention_backward_share(self) -> float:
        """Share of the layers whose attention has a backward pass: all of them, except the first if nothing before it is trained."""
        return 1.0 if self._reached["attention"] else 1.0 - 1.0 / self._shape.layers

    @property
    def per_token(self) -> int:
        """FLOPs per token of all matrices, forward and backward."""
        return sum(self._projection(p) for p in self._shape.projections)

    def _projection(self, p: Projection) -> int:
        applied = p.layers * p.active
        own_gradient = applied if p in self._trained else 0
        base = 2 * p.weights * (applied + self._with_input_gradient(p) + own_gradient)
        return base + (self._adapter(p) if p in self._adapted else 0)

    def _with_input_gradient(self, p: Projection) -> int:
        """Applications of the projection, over all layers, whose input needs a gradient."""
        first_without = p.stage != "head" and p.in_first_layer and not self._reached[p.stage]
        return p.active * (p.layers - first_without)

    def _adapter(self, p: Projection) -> int:
        """A and B: forward and own gradients of both. B's input gradient is always needed, for A; A's only where gradients flow."""
        a, b = (2 * self._rank * p.rank_factor * width for width in (p.inputs, p.outputs))
        return p.layers * p.active * (2 * a + 3 * b) + self._with_input_gradient(p) * a

    @property
    def rerun_per_token(self) -> int:
        """FLOPs per token of running each layer's forward again.

        torch stops a recomputation once all inputs of backward exist (`checkpoint`, early stop). That is before a layer's last matmul,
        unless a later operation keeps its result.
        """
        body = [p for p in self._shape.projections if p.stage != "head"]
        rerun = sum(2 * p.layers * p.active * (p.weights + (p.adapter_weights(self._rank) if p in self._adapted else 0)) for p in body)
        return rerun if self._shape.keeps_last_output else rerun - self._last_matmul()

    def _last_matmul(self) -> int:
        last = next(p for p in self._shape.projections if p.stage == "down")
        outputs = self._rank if last in self._adapted else last.inputs
        return 2 * last.layers * outputs * last.outputs

    def folding(self, tokens: int, passes: int) -> int:
        """Hardware FLOPs beyond the mathematics: PEFT folds adapters of fused experts into the weights, and computes norms of whole DoRA
        weights.

        A folded weight gets a whole gradient, from which those of A and B are computed, instead of two thin matmuls per token.
        """
        folded = [p for p in self._adapted if p.stacked]
        thin = sum(self._adapter(p) for p in folded)
        whole = sum(2 * p.active_weights for p in folded)
        return tokens * (whole - thin) + passes * (FOLDS_FORWARD + 2) * self._fold(folded) + self._dora_norms(passes)

    def folding_again(self, tokens: int, passes: int) -> int:
        """The same for the recomputed forward pass."""
        folded = [p for p in self._adapted if p.stacked]
        thin = sum(2 * p.layers * p.active * p.adapter_weights(self._rank) for p in folded)
        return passes * FOLDS_FORWARD * self._fold(folded) - tokens * thin + self._dora_norms(passes)

    def _fold(self, folded: list[Projection]) -> int:
        """FLOPs of B A for all experts, once."""
        return sum(2 * p.layers * p.copies * p.weights * self._rank * p.rank_factor for p in folded)

    def _dora_norms(self, passes: int) -> int:
        """DoRA's norm of W + BA: PEFT sends an identity matrix through A and B in each pass."""
        if self._method.dora is None:
            return 0
        return sum(2 * passes * p.layers * self._rank * p.inputs * (p.inputs + p.outputs) for p in self._adapted)


def _gradients_in_first_layer(shape: ModelShape, trainable: frozenset[Projection], embedding: bool) -> dict[str, bool]:
    """Stage -> whether the gradient of its input is needed in the first layer. Later layers always need it."""
    first = {p.stage for p in trainable if p.in_first_layer}
    latent = embedding or "input" in first
    attention = latent or "latent" in first
    stream = attention or "output" in first
    into_blocks = embedding if shape.parallel_residual else stream
    return {
        "input": embedding,
        "latent": latent,
        "attention": attention,
        "output": attention,
        "up": into_blocks,
        "router": into_blocks,
        "down": into_blocks or bool(first & {"up", "router"}),
    }
