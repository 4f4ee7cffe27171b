"""Variable-length attention: each sample of packed or padded rows attends to itself, and no mask over a row is made.

transformers knows it by `VARLEN`, like its own implementations. Where the kernel of torch cannot run (on cpu, with dropout, with wide
heads), torch's scaled dot-product attention computes sample by sample.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers.integrations.flash_attention import get_target_dtype
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, causal_mask_function, sdpa_mask
from transformers.modeling_utils import AttentionInterface

from tuneyard.catalog import WIDEST_FLASH_HEAD

VARLEN = "tuneyard_varlen"
_MULTIPLE = 8
"""Of which the width of a head must be a multiple in the kernel."""
_OTHER_SCORES = ("softcap", "s_aux", "position_bias")
"""Arguments that change the scores in ways that the kernel does not have."""


@dataclass(frozen=True)
class Samples:
    """The samples of a micro-batch. It takes the place of a mask among a layer's arguments, so that a recomputed layer gets it again."""

    starts: torch.Tensor
    """First tokens of the samples among the kept tokens, and the number of kept tokens: int32 (samples + 1)."""
    longest: int
    kept: torch.Tensor | None
    """Indices of the tokens that are not padding, over all rows; None: every token is kept."""
    window: int | None
    """Tokens that a token sees, with itself; None: all before it."""


def samples_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    mask_function: Callable[..., torch.Tensor] = causal_mask_function,
    attention_mask: torch.Tensor | None = None,
    local_size: int | None = None,
    device: torch.device | str = "cpu",
    **others: Any,
) -> Samples | torch.Tensor | None:
    """The samples that a mask of transformers describes. A sample starts where a token does not see the token before it.

    `mask_function` (row, head, query, key): whether a query sees a key, padding aside. `attention_mask` (rows, tokens): False for padding.
    `local_size`: the window, or the length of a chunk. A mask in which tokens see later ones, or with a cache, stays a mask.
    """

    def as_mask() -> torch.Tensor | None:
        known = {"mask_function": mask_function, "attention_mask": attention_mask, "local_size": local_size, "device": device}
        mask: torch.Tensor | None = sdpa_mask(batch_size=batch_size, q_length=q_length, kv_length=kv_length, **known, **others)
        return mask

    if q_length != kv_length or others.get("use_vmap", False):
        return as_mask()
    rows, head = torch.arange(batch_size, device=device)[:, None], torch.zeros((), dtype=torch.long, device=device)
    later, earlier = torch.arange(1, q_length, device=device)[None], torch.arange(q_length - 1, device=device)[None]
    if mask_function(rows, head, earlier, later).any():
        return as_mask()
    cut = torch.ones(batch_size, q_length, dtype=torch.bool, device=device)
    cut[:, 1:] = ~mask_function(rows, head, later, earlier)
    kept = None
    if attention_mask is not None and not attention_mask.all():
        cut = (cut | (attention_mask.cumsum(dim=-1) == 1))[attention_mask]
        kept = attention_mask.flatten().nonzero()[:, 0]
    starts = cut.flatten().nonzero()[:, 0]
    starts = torch.cat([starts, starts.new_tensor([cut.numel()])]).to(torch.int32)
    return Samples(starts, int(starts.diff().max()), kept, local_size)


def varlen_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Samples | torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of (rows, heads, tokens, width), with (rows, tokens, heads, width) as its result. Key heads may be fewer than query heads.

    Raises ValueError for scores that are capped, biased, or have sinks.
    """
    unknown = [name for name in _OTHER_SCORES if others.get(name) is not None]
    if unknown:
        raise ValueError(f"variable-length attention has no {' and no '.join(unknown)}: set model.attention to sdpa or eager")
    if not isinstance(attention_mask, Samples):
        result, _ = sdpa_attention_forward(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **others)
        return result, None
    samples, shape = attention_mask, (query.shape[0], query.shape[2], query.shape[1], value.shape[-1])
    narrow = get_target_dtype(query, module) if query.is_cuda else None
    flat = [each.transpose(1, 2).flatten(0, 1) for each in (query, key, value)]
    if samples.kept is not None:
        flat = [each.index_select(0, samples.kept) for each in flat]
    q, k, v = (each if narrow is None else each.to(narrow) for each in flat)
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    kernel = _kernel() if q.is_cuda and dropout == 0.0 and q.shape[-1] <= WIDEST_FLASH_HEAD and q.dtype != torch.float32 else None
    result = _one_by_one(q, k, v, samples, scale, dropout) if kernel is None else kernel(q, k, v, samples, scale)
    if samples.kept is not None:
        result = result.new_zeros(shape[0] * shape[1], *result.shape[1:]).index_copy(0, samples.kept, result)
    return result.view(shape), None


def _one_by_one(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, samples: Samples, scale: float, dropout: float) -> torch.Tensor:
    """The attention of each sample by itself: (tokens, heads, width), as in `_kernel`."""
    parts = []
    lengths = samples.starts.diff().tolist()
    for query, key, value in zip(q.split(lengths), k.split(lengths), v.split(lengths), strict=True):
        mask = None
        if samples.window is not None and len(query) > samples.window:
            at = torch.arange(len(query), device=q.device)
            mask = (at[:, None] >= at) & (at[:, None] - at < samples.window)
        found = scaled_dot_product_attention(
            query.transpose(0, 1)[None],
            key.transpose(0, 1)[None],
            value.transpose(0, 1)[None],
            attn_mask=mask,
            is_causal=mask is None,
            dropout_p=dropout,
            scale=scale,
            enable_gqa=q.shape[1] != k.shape[1],
        )
        parts.append(found[0].transpose(0, 1))
    return torch.cat(parts)


def _kernel() -> Callable[..., torch.Tensor] | None:
    """FlashAttention inside torch, over `Samples`. None: this torch has none with windows (2.11 is the first)."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    known = inspect.signature(varlen_attn).parameters
    return _over_samples(varlen_attn, grouped="enable_gqa" in known) if {"scale", "window_size"} <= set(known) else None


def _over_samples(varlen_attn: Callable[..., Any], *, grouped: bool) -> Callable[..., torch.Tensor]:
    """`grouped`: whether the kernel shares key heads. Otherwise they are repeated."""

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, samples: Samples, scale: float) -> torch.Tensor:
        width, groups = v.shape[-1], q.shape[1] // k.shape[1]
        if groups > 1 and not grouped:
            k, v = (each.repeat_interleave(groups, dim=1) for each in (k, v))
        aligned = -(-q.shape[-1] // _MULTIPLE) * _MULTIPLE
        q, k, v = (pad(each, [0, aligned - each.shape[-1]]).contiguous() for each in (q, k, v))
        window = (-1, 0) if samples.window is None or samples.window >= samples.longest else (samples.window - 1, 0)
        settings = {"enable_gqa": groups > 1} if grouped else {}
        longest = samples.longest
        result: torch.Tensor = varlen_attn(
            q, k, v, samples.starts, samples.starts, longest, longest, scale=scale, window_size=window, **settings
        )
        return result[..., :width]

    return attend


AttentionInterface.register(VARLEN, varlen_attention)
AttentionMaskInterface.register(VARLEN, samples_mask)
