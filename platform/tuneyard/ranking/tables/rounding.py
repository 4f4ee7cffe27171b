"""Stochastic rounding to fp16: up or down, so that the expectation is the value itself. Small updates are not lost; they occur less often.

The random numbers are a hash of the cell and the step: a resume draws the same ones, and so does another placement.
"""

from __future__ import annotations

import torch

_LARGEST = 65_504.0
_SMALLEST_NORMAL = 2.0**-14
_DROPPED_BITS = 13
"""Dropped bits: fp32 has 23 bits behind the point, fp16 has 10."""
_BELOW = (1 << _DROPPED_BITS) - 1
_GOLDEN, _MIX_1, _MIX_2 = -1640531527, -2048144789, -1028477387
"""2^32 over the golden ratio, and the factors of MurmurHash3's finaliser, as signed numbers."""
_SEED = 2_654_435_769
"""Spreads consecutive steps over 31 bits."""


def rounded_to_fp16(values: torch.Tensor, keys: torch.Tensor, columns: torch.Tensor, seed: int) -> torch.Tensor:
    """fp32 values [rows, columns] in fp16. Values beyond its range become its largest ones.

    `keys` [rows] and `columns` [columns] or [rows, columns], both int32, identify the cells, and `seed` the draw. Below its normal range,
    fp16 has steps as wide as just above it: such a value is moved up there, rounded, and moved back. fp32 loses at most 2^-14 of a step in
    these moves.
    """
    values = values.clamp(-_LARGEST, _LARGEST)
    moved = torch.copysign(torch.tensor(_SMALLEST_NORMAL, device=values.device), values).mul_(values.abs() < _SMALLEST_NORMAL)
    bits = values.add_(moved).view(torch.int32)
    bits += _random(keys, columns, seed)  # to the magnitude, as the sign is a separate bit
    bits &= ~_BELOW
    return values.sub_(moved).half()


def _random(keys: torch.Tensor, columns: torch.Tensor, seed: int) -> torch.Tensor:
    """Random bits for each cell [rows, columns], as many as are dropped."""
    of_rows = _mixed(keys * _GOLDEN ^ (seed * _SEED) % (1 << 31))
    bits = (of_rows.unsqueeze(1) ^ (columns + 1) * _MIX_2).mul_(_MIX_1)
    bits ^= bits >> 15
    bits *= _MIX_2
    bits >>= 32 - _DROPPED_BITS  # the last product mixes the highest bits best
    return bits.bitwise_and_(_BELOW)


def _mixed(bits: torch.Tensor) -> torch.Tensor:
    bits = (bits ^ (bits >> 15)) * _MIX_1
    bits = (bits ^ (bits >> 13)) * _MIX_2
    return bits ^ (bits >> 16)
