"""FLOPs and bytes of one pass of an engine: of its weights, of attention, and of its collectives.

- Weights (Kaplan et al. 2020, 2.1): 2 FLOPs for each weight that a token passes through. A pass reads each weight once, whatever the number
  of its tokens. Of a mixture it reads those experts to which a token was sent: if each token picks k of E experts, and each expert is as
  likely as the others, m tokens touch E (1 - (1 - k / E)^m) of them on average.
- Attention: a decoded token reads the keys and values of all tokens before it (Kwon et al. 2023, PagedAttention, 2.1).
- Collectives: an all-reduce after attention and one after the feed-forward part of each layer (Shoeybi et al. 2019, Megatron-LM, 3).
"""

from __future__ import annotations

from dataclasses import dataclass

from tuneyard.catalog import ModelShape
from tuneyard.catalog.flops import attention_forward_flops
from tuneyard.planning.inference import kv_bytes_per_sequence

_ALL_REDUCES = 2


@dataclass(frozen=True, kw_only=True)
class EngineModel:
    """The model of an engine. Bytes of one weight, of one element of the KV cache, and of one activation: 2 in 16 bits, 1 in 8 bits."""

    shape: ModelShape
    weight_bytes: float
    cache_bytes: float
    activation_bytes: float = 2.0

    @property
    def layers_with_experts(self) -> int:
        return max((p.layers for p in self.shape.projections if p.copies > 1), default=0)

    @property
    def all_reduces(self) -> int:
        """All-reduces of a pass with tensor parallelism."""
        return _ALL_REDUCES * self.shape.layers

    def weight_bytes_read(self, tokens: float) -> float:
        """Bytes of weights that a pass over `tokens` tokens reads, over all devices."""
        read = 0.0
        for p in self.shape.projections:
            touched = p.copies * (1 - (1 - p.active / p.copies) ** tokens) if p.copies > 1 else 1.0
            read += p.layers * p.weights * touched
        return read * self.weight_bytes

    def matmul_flops(self, tokens: float, with_head: float) -> float:
        """FLOPs of all matrices for `tokens` tokens, of which `with_head` pass through the head."""
        head = self.shape.head.active_weights
        return 2.0 * ((self.shape.linear_parameters - head) * tokens + head * with_head)

    def prefill_attention_flops(self, length: int) -> float:
        """FLOPs of attention in one prompt of `length` tokens, each of which sees those before it."""
        return attention_forward_flops(self.shape, [length], causal=True)

    def cached_bytes(self, length: float, tensor_parallel: int) -> float:
        """Bytes of the keys and values of one sequence, over all devices."""
        return kv_bytes_per_sequence(self.shape, round(length), "bf16", tensor_parallel) / 2 * self.cache_bytes

    def reduced_bytes(self, tokens: float) -> float:
        """Bytes of one all-reduce of a pass over `tokens` tokens."""
        return tokens * self.shape.hidden * self.activation_bytes
