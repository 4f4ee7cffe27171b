"""Attention over whole rows by ranks that hold slices of them, as an attention implementation of transformers.

1. For each kind of mask, a model calls the mask function of its implementation. The function here returns the rule of the mask (causal,
   sliding, chunked) instead of a tensor.
2. The model passes the rule to its layers.
3. The attention function exchanges tokens for heads and applies the rule sample by sample. No mask over a whole row is ever made, and
   samples of a packed row never meet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import use_gqa_in_sdpa
from transformers.masking_utils import sdpa_mask

from tuneyard.api import BadInput
from tuneyard.parallel.context.exchange import Group, heads_for_tokens, tokens_for_heads

ATTENTION = "tuneyard_context"
"""Name of the implementation in transformers."""
Spans = tuple[tuple[tuple[int, int], ...], ...]
"""Per row of a batch: first token and end of each of its samples. Together they are all tokens of the row."""


@dataclass(frozen=True)
class Row:
    """Facts about the rows of a forward pass that attention needs. `spans` None: each row is one sample."""

    group: Group
    ranks: int
    spans: Spans | None


@dataclass(frozen=True)
class Block:
    """Queries from `begin` to `end`, which see keys from `keys_from` to `end`; places in the row."""

    keys_from: int
    begin: int
    end: int


@dataclass(frozen=True)
class RowMask:
    """A rule that a layer gets in place of a mask."""

    row: Row
    function: Callable[..., Any]
    """transformers' mask function: (row, head, query, key) -> whether the query attends to the key."""
    local_size: int | None
    """Largest number of tokens that a query sees: a sliding window or a chunk; None: all before it."""

    def blocks(self, first: int, end: int) -> Iterator[Block]:
        """Queries from `first` to `end` with the keys that they may see: in one block, or in blocks of the length of the window or
        chunk.
        """
        step = self.local_size or end - first
        for begin in range(first, end, step):
            yield Block(max(first, begin - step), begin, min(begin + step, end))

    def of(self, block: Block, device: torch.device) -> torch.Tensor | None:
        """(1, 1, queries, keys), True where a query attends; None: causal."""
        return sdpa_mask(
            batch_size=1,
            q_length=block.end - block.begin,
            kv_length=block.end - block.keys_from,
            q_offset=block.begin,
            kv_offset=block.keys_from,
            mask_function=self.function,
            allow_is_causal_skip=self.local_size is None,
            device=device,
        )


def register(current: Callable[[], Row]) -> None:
    """Register the implementation with transformers. `current`: returns the rows of the current forward pass."""

    def mask(*, mask_function: Callable[..., Any], local_size: int | None = None, use_vmap: bool = False, **_: Any) -> RowMask:
        if use_vmap:
            raise BadInput("the model adds a rule of its own to the causal mask", "set strategy.contextParallel to 1")
        return RowMask(current(), mask_function, local_size)

    AttentionInterface.register(ATTENTION, attend)
    AttentionMaskInterface.register(ATTENTION, mask)


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: RowMask | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """`query`, `key` and `value`: (rows, heads, tokens of this rank's slice, width) -> (rows, tokens, heads, width of values).

    Raises BadInput for heads that the ranks cannot share, and for a bias or a mask that the model made itself, which a slice cannot use.
    """
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    if not isinstance(attention_mask, RowMask) or not causal:
        raise BadInput("the model makes an attention mask itself, for its slice alone", "set strategy.contextParallel to 1")
    unseen = [name for name in ("position_bias", "s_aux") if others.get(name) is not None]
    if unseen:
        raise BadInput(f"attention adds {unseen[0]} to its scores, which is made for one slice", "set strategy.contextParallel to 1")
    row = attention_mask.row
    check_heads(query.shape[1], row.ranks)
    keys = key.shape[1]
    repeats = row.ranks // math.gcd(keys, row.ranks)
    if repeats > 1:  # fewer key-value heads than ranks: repeat them, so that each rank has one
        key, value = key.repeat_interleave(repeats, dim=1), value.repeat_interleave(repeats, dim=1)
    query, key, value = (heads_for_tokens(tensor, row.group) for tensor in (query, key, value))
    attended = _by_sample(query, key, value, attention_mask, dropout, scaling)
    return tokens_for_heads(attended, row.group).transpose(1, 2).contiguous(), None


def check_heads(heads: int, ranks: int) -> None:
    """Raises BadInput if `ranks` cannot share the heads evenly, with the degrees that can."""
    if heads % ranks:
        degrees = ", ".join(str(degree) for degree in range(1, heads + 1) if heads % degree == 0)
        raise BadInput(
            f"{ranks} ranks cannot share {heads} attention heads evenly, as contextParallel asks",
            f"set strategy.contextParallel to one of {degrees}",
        )


def _by_sample(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: RowMask, dropout: float, scaling: float | None
) -> torch.Tensor:
    """(rows, heads, tokens, width) of whole rows -> the same shape, with the width of values."""

    def of(rows: slice, samples: Sequence[tuple[int, int]]) -> torch.Tensor:
        parts = []
        for first, end in samples:
            for block in mask.blocks(first, end):
                queries, keys = slice(block.begin, block.end), slice(block.keys_from, block.end)
                own = query[rows, :, queries], key[rows, :, keys], value[rows, :, keys]
                parts.append(_attention(*own, mask.of(block, query.device), dropout, scaling))
        return torch.cat(parts, dim=2)

    spans = mask.row.spans
    if spans is None:
        return of(slice(None), [(0, query.shape[2])])
    return torch.cat([of(slice(number, number + 1), samples) for number, samples in enumerate(spans)])


def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, dropout: float, scaling: float | None
) -> torch.Tensor:
    groups = query.shape[1] // key.shape[1]
    shares = groups > 1 and use_gqa_in_sdpa(mask, key, value)
    if groups > 1 and not shares:
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    return scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=mask is None, scale=scaling, enable_gqa=shares
    )
