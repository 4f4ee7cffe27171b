"""Mean and variance without rounding: sums of numbers and of their squares as whole numbers of any size.

Both results are rounded once, so they depend neither on the order of the numbers, nor on batches, nor on the machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

_MANTISSA = 53
_UNIT = 1126
"""A double is a whole number of 2^-1126: its least exponent in `frexp` is -1073, with a mantissa of 53 bits below it."""
_LIMB = 18
_CHUNK = 1 << 15
"""Sums of this many products of two limbs, of which up to three are added before, are below 2^53: doubles add them without rounding."""


@dataclass
class Moments:
    """`count` finite numbers that were added, and `missing` others: NaN and infinite ones."""

    count: int = 0
    missing: int = 0
    _sum: int = 0
    """In units of 2^-1126."""
    _squares: int = 0
    """In units of 2^-2252."""

    def add(self, values: npt.NDArray[np.float64]) -> None:
        """Add numbers."""
        finite = values[np.isfinite(values)]
        self.count += len(finite)
        self.missing += len(values) - len(finite)
        for start in range(0, len(finite), _CHUNK):
            self._add(finite[start : start + _CHUNK])

    def _add(self, values: npt.NDArray[np.float64]) -> None:
        mantissas, exponents = np.frexp(values)
        whole = (mantissas * (1 << _MANTISSA)).astype(np.int64)
        shifts = exponents - _MANTISSA + _UNIT
        sizes, mask = np.abs(whole), (1 << _LIMB) - 1
        first, second, third = (((sizes >> (_LIMB * at)) & mask).astype(np.float64) for at in range(3))
        signs = np.sign(whole)
        for at, limb in enumerate((first, second, third)):
            self._sum += _total(signs * limb, shifts, at * _LIMB, factor=1)
        products = (first * first, 2 * first * second, 2 * first * third + second * second, 2 * second * third, third * third)
        for at, product in enumerate(products):
            self._squares += _total(product, shifts, at * _LIMB, factor=2)

    @property
    def mean(self) -> float:
        """Their mean. Raises ZeroDivisionError without numbers."""
        return float(self._mean)

    @property
    def variance(self) -> float:
        """The mean of their squared distances from the mean. Raises ZeroDivisionError without numbers, OverflowError beyond doubles."""
        return float(Fraction(self._squares, self.count << (2 * _UNIT)) - self._mean**2)

    @property
    def _mean(self) -> Fraction:
        return Fraction(self._sum, self.count << _UNIT)


def _total(weights: npt.NDArray[np.float64], shifts: npt.NDArray[np.int64], more: int, *, factor: int) -> int:
    """The sum of weight * 2^(factor * shift + more), where each weight is whole."""
    if not weights.any():  # whole numbers, and numbers that were fp32, have few bits
        return 0
    sums = np.bincount(shifts, weights=weights)
    return sum(int(sums[shift]) << (factor * int(shift) + more) for shift in np.flatnonzero(sums))
