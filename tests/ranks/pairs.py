"""What a plan cuts in pairs, and what one rank of a group exchanges under it, counted in one process without other ranks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from tests.ranks.sharded_models import ROWS, SEED, TOKENS, VOCAB, tiny_model

PAIRED = ("colwise", "rowwise", "packed_colwise", "packed_rowwise", "moe_tp_experts", "embedding_colwise")


@dataclass
class Pairs:
    """One model: parameters inside of its layers, and those of them that are cut in pairs; collectives of a step and the bytes of the
    tensors that they add up or join; what is divided, and the largest part of the layers that is not in pairs, with the reason.
    """

    model: str
    blocks: int = 0
    paired: int = 0
    collectives: int = 0
    bytes: int = 0
    divided: str = ""
    largest: str = ""
    error: str = ""
    difference: float | None = None
    """The largest difference of logits, or of a gradient, between real ranks and one process, relative to the largest value."""


def pairs_of(model_type: str, degree: int) -> Pairs:
    """The row of one model type, from its small config."""
    from tuneyard.parallel import explain_tensor_parallel

    row = Pairs(model_type)
    try:
        plan = explain_tensor_parallel(tiny_model(model_type, meta=True), degree)
        inside = [each for each in plan.placements if ".*" in each.name]
        rest = sorted((each for each in inside if each.style.partition(":")[0] not in PAIRED), key=lambda each: -each.parameters)
        row.blocks = sum(each.parameters for each in inside)
        row.paired = row.blocks - sum(each.parameters for each in rest)
        row.largest = f"`{rest[0].name}`: {rest[0].why}" if rest else ""
        numbers = getattr(plan, "divisions", {})
        row.divided = ", ".join(f"`{module}`: {own}" for module in numbers for own in sorted(numbers[module]))
        row.collectives, row.bytes = _exchanged(model_type, plan, degree)
    except Exception as error:  # noqa: BLE001  the row says why there are no figures
        row.error = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:160]}"
    return row


def _exchanged(model_type: str, plan: Any, degree: int) -> tuple[int, int]:
    """Collectives of one forward and backward pass on the first of `degree` ranks, and the bytes of their tensors."""
    from tuneyard.parallel import shard_model
    from tuneyard.parallel.collectives import TensorGroup

    model = tiny_model(model_type)
    shard_model(model, plan, TensorGroup(None, 0, degree))
    torch.manual_seed(SEED)
    ids = torch.randint(0, VOCAB, (ROWS, TOKENS))
    both = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
    plain = {"use_cache": False} if hasattr(model.config, "use_cache") else {}
    with _counted(degree) as sizes:
        answer = model(input_ids=ids, **both, **plain)
        (answer["logits"] if "logits" in answer else answer["last_hidden_state"]).float().sum().backward()
    return len(sizes), sum(sizes)


@contextmanager
def _counted(degree: int) -> Iterator[list[int]]:
    """The bytes of each collective's tensor. Nothing is sent: the other ranks' parts are zeros."""
    sizes: list[int] = []

    def added(tensor: torch.Tensor, *_: Any, **__: Any) -> None:
        sizes.append(tensor.nbytes)

    def joined(parts: list[torch.Tensor], own: torch.Tensor, *_: Any, **__: Any) -> None:
        sizes.append(own.nbytes * degree)
        for part in parts:
            part.copy_(own)

    with patch.object(dist, "all_reduce", added), patch.object(dist, "all_gather", joined):
        yield sizes
