"""All-reduce of gradients in 8 bits: blocks of int8 or fp8 values with one fp32 scale each, and error feedback.

1. A rank cuts its tensor into one chunk per rank, and sends each chunk in 8 bits to its owner (all-to-all).
2. The owner adds up the chunks in fp32.
3. It sends the mean in 8 bits to all ranks (all-gather).

So a rank sends 2 (n - 1) / n x 1.016 bytes per element, where a ring in fp32 sends 2 (n - 1) / n x 4. Every rank decodes the same bytes:
results are equal bit for bit, and replicas do not drift.

Each rank keeps its rounding errors and adds them to the next tensor (Seide et al. 2014; both stages, as in Tang et al. 2021, 1-bit Adam). A
block with a value that is not finite becomes NaN as a whole, on every rank: the loss scaler and the NaN guard see it. It leaves no error
behind.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

BLOCK = 256
"""Elements that share a scale."""
_SCALE_BYTES = 4
_CACHED_BLOCKS = 256
"""Blocks that are coded at a time on cpu: 256 kB of fp32 values."""
_SMALLEST = 1e-30
"""A block with a smaller maximum is sent as zeros, and kept in the error: its scale would leave the range of fp32."""


@dataclass(frozen=True)
class BlockFormat:
    """8-bit codes of a block. The largest value of a block is scaled to `largest`."""

    name: str
    dtype: torch.dtype
    largest: float


FORMATS = {
    "int8": BlockFormat("int8", torch.int8, 127.0),
    "fp8": BlockFormat("fp8", torch.float8_e4m3fn, 448.0),
}


def encode(values: torch.Tensor, form: BlockFormat) -> torch.Tensor:
    """fp32 values `[rows, k * BLOCK]` as bytes `[rows, k * (BLOCK + 4)]`: the codes of a row, then its scales.

    The rounding error stays in `values`: zeros in a block that is not finite.
    """
    rows, count = values.shape[0], values.shape[1] // BLOCK
    message = torch.empty(rows, count * (BLOCK + _SCALE_BYTES), dtype=torch.uint8, device=values.device)
    for row, encoded in zip(values, message, strict=True):
        codes, scales = _parts(encoded, form)
        blocks = row.view(-1, BLOCK)
        for place in _slices(count, values):
            scales[place] = _encode_slice(blocks[place], codes[place], form)
    return message


def _encode_slice(blocks: torch.Tensor, codes: torch.Tensor, form: BlockFormat) -> torch.Tensor:
    """Write the `codes` of `blocks` `[k, BLOCK]`, leave the remainder in `blocks`, and return the scales `[k]`."""
    largest = torch.maximum(blocks.amax(1), -blocks.amin(1))
    scales = torch.where(largest < _SMALLEST, 0.0, largest / form.largest)  # a comparison with NaN is false, so NaN stays
    inverse = torch.where(scales > 0, 1 / scales, 0.0)
    finite = torch.isfinite(scales)
    whole = bool(finite.all())
    if not whole:
        blocks.masked_fill_(~finite.unsqueeze(1), 0.0)
        inverse = torch.where(finite, inverse, 0.0)
    scaled = blocks * inverse.unsqueeze(1)
    if form.dtype == torch.int8:
        scaled.round_()
    codes.copy_(scaled)
    if form.dtype != torch.int8:
        scaled.copy_(codes)
    blocks.addcmul_(scaled, (scales if whole else torch.where(finite, scales, 0.0)).unsqueeze(1), value=-1)
    return scales


def decode(message: torch.Tensor, form: BlockFormat) -> torch.Tensor:
    """The fp32 values `[rows, k * BLOCK]` of bytes from `encode`. A scale that is not finite makes its whole block NaN."""
    rows, count = message.shape[0], message.shape[1] // (BLOCK + _SCALE_BYTES)
    values = torch.empty(rows, count * BLOCK, dtype=torch.float32, device=message.device)
    for row, encoded in zip(values, message, strict=True):
        codes, scales = _parts(encoded, form)
        factors = torch.where(torch.isfinite(scales), scales, float("nan")).unsqueeze(1)
        blocks = row.view(-1, BLOCK)
        for place in _slices(count, message):
            blocks[place].copy_(codes[place]).mul_(factors[place])
    return values


def _parts(message: torch.Tensor, form: BlockFormat) -> tuple[torch.Tensor, torch.Tensor]:
    """Views of one encoded row: codes `[k, BLOCK]` and scales `[k]`."""
    count = message.numel() // (BLOCK + _SCALE_BYTES)
    return message[: count * BLOCK].view(form.dtype).view(count, BLOCK), message[count * BLOCK :].view(torch.float32)


def _slices(count: int, tensor: torch.Tensor) -> Iterator[slice]:
    """Runs of blocks that stay in a core's cache between operations; all blocks at once on a GPU."""
    step = count if tensor.is_cuda else _CACHED_BLOCKS
    return (slice(first, first + step) for first in range(0, count, step))


@dataclass
class Errors:
    """Rounding errors of one tensor so far, in fp32: of this rank's own values, and of the mean that it owns."""

    content: Hashable
    unit: float
    own: torch.Tensor
    mean: torch.Tensor


@dataclass
class CompressedAllReduce:
    """The mean over `group`, in place. Calls are collective, in the same order on every rank.

    `unit`: the factor of all values, such as the loss scale of fp16. Errors are rescaled when it changes.
    """

    group: Any
    form: BlockFormat
    feedback: bool = True
    unit: Callable[[], float] = lambda: 1.0
    bytes_sent: int = 0
    """Bytes that this rank has sent so far."""
    _errors: dict[int, Errors] = field(default_factory=dict)

    def __call__(self, flat: torch.Tensor, slot: int, content: Hashable) -> None:
        """Average `flat`: one dimension, any floating dtype, the same length on all ranks.

        `slot`: index among the tensors of a step; `content`: identifies the tensor's content. Errors are kept per slot, and dropped when
        its content changes.
        """
        ranks, elements = dist.get_world_size(self.group), flat.numel()
        if ranks == 1 or elements == 0:
            return
        chunk = -(-elements // (ranks * BLOCK)) * BLOCK
        values = torch.zeros(ranks * chunk, dtype=torch.float32, device=flat.device)
        values[:elements].copy_(flat)
        errors = self._errors_of(slot, (content, elements), chunk, values)
        sent = self._encoded(values.view(ranks, chunk), errors.own if errors else None)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent, group=self.group)
        mean = decode(received, self.form).sum(dim=0, keepdim=True).div_(ranks)
        own = self._encoded(mean, errors.mean if errors else None)
        gathered = torch.empty_like(sent)
        dist.all_gather_into_tensor(gathered, own, group=self.group)
        flat.copy_(decode(gathered, self.form).view(-1)[:elements])
        self.bytes_sent += 2 * (ranks - 1) * own.numel()

    def _encoded(self, values: torch.Tensor, error: torch.Tensor | None) -> torch.Tensor:
        """Bytes of `values` plus `error`. The new rounding error stays in `error`."""
        if error is None:
            return encode(values, self.form)
        values.add_(error.view_as(values))
        message = encode(values, self.form)
        error.view_as(values).copy_(values)
        return message

    def _errors_of(self, slot: int, content: Hashable, chunk: int, values: torch.Tensor) -> Errors | None:
        if not self.feedback:
            return None
        unit, kept = self.unit(), self._errors.get(slot)
        if kept is None or kept.content != content:
            kept = self._errors[slot] = Errors(content, unit, torch.zeros_like(values), torch.zeros_like(values[:chunk]))
        if kept.unit != unit:
            kept.own.mul_(unit / kept.unit)
            kept.mean.mul_(unit / kept.unit)
            kept.unit = unit
        return kept


def ring_bytes(elements: int, element_size: int, ranks: int) -> int:
    """Bytes that a rank sends in an uncompressed ring all-reduce (Thakur et al. 2005)."""
    return 2 * (ranks - 1) * -(-elements // ranks) * element_size if ranks > 1 else 0
