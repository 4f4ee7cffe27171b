"""Sentence embeddings from embeddings of tokens, as `1_Pooling/config.json` of sentence-transformers names the ways of pooling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneyard.api import BadInput

_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""Fields of folders written before sentence-transformers 6, in the order in which several pooled vectors are joined."""
_MODES = tuple(_FLAGS.values())


def modes_of(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The ways of pooling in a configuration; their vectors are joined. Raises BadInput for an unknown one."""
    named = config.get("pooling_mode")
    if named is None:
        return tuple(mode for flag, mode in _FLAGS.items() if config.get(flag)) or ("mean",)
    modes = (named,) if isinstance(named, str) else tuple(named)
    if not modes or (unknown := [mode for mode in modes if mode not in _MODES]):
        raise BadInput(f"the embedding model pools by {unknown or 'nothing'}, which is not known", f"known: {', '.join(_MODES)}")
    return modes


def pooled(tokens: Any, mask: Any, modes: tuple[str, ...]) -> Any:
    """Sentence embeddings [texts, modes * width] of token embeddings [texts, length, width]. `mask` [texts, length]: 1 for a text's tokens,
    which stand first; 0 for padding."""
    import torch

    kept = mask.unsqueeze(-1).to(tokens.dtype)
    count = kept.sum(1).clamp(min=1e-9)
    place = torch.arange(1, tokens.shape[1] + 1, dtype=tokens.dtype).view(1, -1, 1)
    last = (mask.sum(1) - 1).clamp(min=0)
    made = {
        "cls": lambda: tokens[:, 0],
        "max": lambda: tokens.masked_fill(kept == 0, float("-inf")).max(1).values,
        "mean": lambda: (tokens * kept).sum(1) / count,
        "mean_sqrt_len_tokens": lambda: (tokens * kept).sum(1) / count.sqrt(),
        "weightedmean": lambda: (tokens * kept * place).sum(1) / (kept * place).sum(1).clamp(min=1e-9),
        "lasttoken": lambda: tokens[torch.arange(len(tokens)), last],
    }
    return torch.cat([made[mode]() for mode in modes], dim=-1)
