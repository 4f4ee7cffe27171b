"""Samples that are longer than a model has positions.

A table of positions that is too short is an IndexError on cpu, and on a GPU an assertion that ends the process. A model with rotary
positions computes something for any position, beyond those that it was trained on.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pyarrow.compute as pc
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tuneyard import data
from tuneyard.api import BadInput
from tuneyard.data.stream import EvaluatedTokens, StreamedTokens
from tuneyard.training.generators import kept_generators
from tuneyard.training.proofs.gathering import gathered_by_module
from tuneyard.training.proofs.kept_weights import kept_weights

_TOKENS = 16
_ATEN = torch.ops.aten


def check_positions(model: nn.Module, longest: int, device: torch.device) -> str | None:
    """Returns a warning for samples of `longest` tokens if the model was trained on shorter rows. Collective. Raises BadInput if they reach
    beyond a table of positions.
    """
    config: Any = model.config
    trained_on = getattr(config.get_text_config(), "max_position_embeddings", None)
    trained_on = trained_on if isinstance(trained_on, int) else longest
    table = _table_below(model, longest, device)
    if table is not None:
        fits = min(trained_on, table)
        raise BadInput(
            f"samples have up to {longest:,} tokens, and this {config.model_type} model has positions for {fits:,}",
            f"set data.maxLength to at most {fits}",
        )
    if longest > trained_on:
        return (
            f"samples have up to {longest:,} tokens, and the model was trained on rows of {trained_on:,} (max_position_embeddings): "
            f"set data.maxLength to {trained_on}, unless it is to learn longer rows"
        )
    return None


class _BeyondTable(Exception):
    def __init__(self, size: int) -> None:
        self.size = size


class _CheckedIndices(TorchDispatchMode):
    """Raises _BeyondTable before an operation would read beyond the end of a tensor."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for size, index in _reads(func, args):
            if index.numel() and int(index.max()) >= size:
                raise _BeyondTable(size)
        return func(*args, **(kwargs or {}))


def _reads(func: Any, args: Any) -> Iterator[tuple[int, torch.Tensor]]:
    """(size of a dimension, indices into it) of an operation that reads by index."""
    if func is _ATEN.embedding.default:
        yield args[0].shape[0], args[1]
    elif func in (_ATEN.index_select.default, _ATEN.gather.default):
        yield args[0].shape[args[1]], args[2]
    elif func is _ATEN.index.Tensor:
        for dim, index in enumerate(args[1]):
            if index is not None and not index.is_floating_point() and index.dtype not in (torch.bool, torch.uint8):
                yield args[0].shape[dim], index


def _table_below(model: nn.Module, longest: int, device: torch.device) -> int | None:
    """Entries of a table that a row of `longest` tokens would read beyond; None if there is none. Only the last tokens are computed, if
    the class takes positions.
    """
    whole: Any = model.get_base_model() if hasattr(model, "get_base_model") else model
    inputs: dict[str, Any] = {}
    if "position_ids" in inspect.signature(whole.forward).parameters:
        tokens = min(_TOKENS, longest)
        inputs["position_ids"] = torch.arange(longest - tokens, longest, device=device)[None]
    else:
        tokens, whole = longest, whole.base_model  # without the head, whose logits would be large
    ids = torch.zeros(1, tokens, dtype=torch.long, device=device)
    try:
        with torch.no_grad(), kept_generators(), kept_weights(model), gathered_by_module(model), _CheckedIndices():
            whole(input_ids=ids, **inputs)
    except _BeyondTable as beyond:
        return beyond.size
    except (RuntimeError, TypeError, ValueError, AttributeError, LookupError, AssertionError):
        return None  # a class that needs other inputs
    return None


def bound_streams(model: nn.Module, prepared: data.Prepared, max_length: int, device: torch.device) -> None:
    """Have streams refuse samples that reach beyond a table of positions: their longest sample is not known before. Collective."""
    streams = [rows for _, rows in prepared.streams if isinstance(rows, StreamedTokens)]
    evaluated = [rows for rows in data.made_for_evaluation(prepared.validation) if isinstance(rows, EvaluatedTokens)]
    table = _table_below(model, max_length, device) if streams or evaluated else None
    if table is None:
        return
    for rows in streams:
        rows.refuse_longer(table)
    for held_out in evaluated:
        held_out.refuse_longer(table)


def longest_sample(prepared: data.Prepared, max_length: int) -> int:
    """Tokens of the longest sample; of rows that are made while the task trains, of the longest in a part of them."""
    parts = prepared.parts or (prepared,)
    rows = [each for part in parts for each in (part.train, part.validation) if each is not None]
    return max((_longest_of(each, max_length) for each in rows), default=max_length)


def _longest_of(rows: Any, max_length: int) -> int:
    if isinstance(rows, StreamedTokens | EvaluatedTokens):
        return rows.longest
    if not hasattr(rows, "data"):
        return 0  # held out of a mixture
    table = rows.data
    if "length" not in rows.column_names:
        return max_length
    if "position_ids" in rows.column_names:
        return 1 + max(int(pc.max(chunk.values).as_py() or 0) for chunk in table.column("position_ids").chunks)
    return int(pc.max(table.column("length")).as_py() or 0)
