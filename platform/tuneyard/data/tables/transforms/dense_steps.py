"""Transformations of dense features (Zhao et al. 2022, table 11): Clamp, Bucketize, BoxCox, Logit, Onehot, GetLocalHour; log1p, normalize.

All but Onehot and GetLocalHour also take lists of numbers, value by value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, Self
from zoneinfo import available_timezones

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from tuneyard.api import BadInput
from tuneyard.data.tables.transforms.lists import item_type
from tuneyard.data.tables.transforms.steps import Step, each, is_number, like, need, numbers

_NUMBERS = "numbers or lists of numbers"
_FIRST_S, _END_S = -62_135_596_800, 253_402_300_800
"""The years 1 to 9999, in seconds since 1970."""
_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}


class _Real(Step):
    """A function of each value, in double precision."""

    def output_type(self, kinds: Sequence[pa.DataType]) -> pa.DataType:
        need(kinds[0], _NUMBERS, is_number(item_type(kinds[0])))
        return like(kinds[0], pa.float64())

    def run(self, arrays: Sequence[pa.Array]) -> pa.Array:
        return each(arrays[0], pa.float64(), lambda values: self.kernel(values.astype(np.float64)))

    def kernel(self, values: npt.NDArray[np.float64]) -> Any:
        raise NotImplementedError


class Clamp(Step):
    """The value, limited to [`low`, `high`]. NaN stays NaN. The type stays the same."""

    op: Literal["clamp"] = "clamp"
    low: float
    high: float

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low <= self.high:
            raise ValueError(f"low {self.low} is above high {self.high}")
        return self

    def output_type(self, kinds: Sequence[pa.DataType]) -> pa.DataType:
        item = item_type(kinds[0])
        need(kinds[0], _NUMBERS, is_number(item))
        if pa.types.is_integer(item) and not (self.low.is_integer() and self.high.is_integer()):
            raise ValueError(f"low {self.low} and high {self.high} must be whole: the feature is {kinds[0]}")
        return like(kinds[0], item)

    def run(self, arrays: Sequence[pa.Array]) -> pa.Array:
        item = item_type(arrays[0].type)
        whole = pa.types.is_integer(item)
        limits = (int(self.low), int(self.high)) if whole else (self.low, self.high)
        if whole:  # a limit outside the type's range has no effect
            info = np.iinfo(item.to_pandas_dtype())
            limits = (min(max(limits[0], info.min), info.max), max(min(limits[1], info.max), info.min))
        return each(arrays[0], item, lambda values: np.clip(values, *limits))


class Bucketize(Step):
    """The number of borders that are at most the value: 0 below the first, `len(borders)` from the last on. NaN counts as largest value."""

    op: Literal["bucketize"] = "bucketize"
    borders: tuple[float, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if any(not low < high for low, high in zip(self.borders, self.borders[1:], strict=False)):
            raise ValueError(f"borders must ascend; found {', '.join(f'{border:g}' for border in self.borders)}")
        return self

    def output_type(self, kinds: Sequence[pa.DataType]) -> pa.DataType:
        need(kinds[0], _NUMBERS, is_number(item_type(kinds[0])))
        return like(kinds[0], pa.int64())

    def run(self, arrays: Sequence[pa.Array]) -> pa.Array:
        return each(arrays[0], pa.int64(), lambda values: np.searchsorted(self.borders, values, side="right"))


class BoxCox(_Real):
    """(x^power - 1) / power, and log x for power 0, where x is the value plus `shift`, at least 1e-6. (Box and Cox 1964, equation 2.)"""

    op: Literal["box_cox"] = "box_cox"
    power: float
    shift: float = 0.0

    def kernel(self, values: npt.NDArray[np.float64]) -> Any:
        positive = np.maximum(values + self.shift, 1e-6)
        with np.errstate(over="ignore"):
            return np.log(positive) if self.power == 0 else (np.power(positive, self.power) - 1) / self.power


class Logit(_Real):
    """log(p / (1 - p)), with p limited to [`epsilon`, 1 - `epsilon`]."""

    op: Literal["logit"] = "logit"
    epsilon: float = Field(default=1e-6, gt=0, lt=0.5)

    def kernel(self, values: npt.NDArray[np.float64]) -> Any:
        p = np.clip(values, self.epsilon, 1 - self.epsilon)
        return np.log(p) - np.log1p(-p)


class Log1p(_Real):
    """log(1 + x), with x at least 0; for counts and amounts."""

    op: Literal["log1p"] = "log1p"

    def kernel(self, values: npt.NDArray[np.float64]) -> Any:
        return np.log1p(np.maximum(values, 0.0))


class Normalize(_Real):
    """(x - `mean`) / sqrt(`variance`). Without these parameters, `fitted` takes them from training rows. NaN stays NaN."""

    op: Literal["normalize"] = "normalize"
    mean: float | None = Field(default=None, allow_inf_nan=False, strict=True)
    variance: float | None = Field(default=None, gt=0, allow_inf_nan=False, strict=True)

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.mean is None) != (self.variance is None):
            raise ValueError("give mean and variance, or neither")
        return self

    def with_statistics(self, mean: float, variance: float) -> Normalize:
        return self.model_copy(update={"mean": mean, "variance": variance})

    def run(self, arrays: Sequence[pa.Array]) -> pa.Array:
        if self.mean is None:
            raise BadInput(
                f"normalize of {self.inputs[0]} has no mean and variance yet",
                "give both, or take the steps that tuneyard.data.tables.fitted returns",
            )
        return super().run(arrays)

    def kernel(self, values: npt.NDArray[np.float64]) -> Any:
        assert self.mean is not None
        assert self.variance is not None
        return (values - self.mean) / math.sqrt(self.variance)


class OneHot(Step):
    """A vector of length `size` with 1 at the value's index; all zeros where the value is null, negative, or at least `size`."""

    op: Literal["one_hot"] = "one_hot"
    size: int = Field(ge=1, le=1 << 16)

    def output_type(self, kinds: Sequence[pa.DataType]) -> pa.DataType:
        need(kinds[0], "whole numbers", pa.types.is_integer(kinds[0]))
        return pa.list_(pa.float32(), self.size)

    def run(self, arrays: Sequence[pa.Array]) -> pa.Array:
        values = numbers(arrays[0])
        hot = (values >= 0) & (values < self.size)
        if arrays[0].null_count:
            hot &= arrays[0].is_valid().to_numpy(zero_copy_only=False)
        vectors = np.zeros((len(values), self.size), np.float32)
        vectors[np.flatnonzero(hot), values[hot].astype(np.int64)] = 1.0
        return pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), self.size)


class GetLocalHour(Step):
    """The hour of the day, 0 to 23, in a time zone (`Europe/Vienna`), of timestamps or seconds since 1970 in UTC.

    From 2038 on, Arrow ignores daylight saving time. Times outside of the years 1 to 9999 give null: they are numbers in another unit, such
    as milliseconds.
    """

    op: Literal["get_local_hour"] = "get_local_hour"
    time_zone: str

    @model_validator(mode="after")
    def _known(self) -> Self:
        try:
            self._hours(pa.array([0], pa.int64()))
        except pa.ArrowException as error:
            near = sorted(name for name in available_timezones() if name.rpartition("/")[2].lower() == self.time_zone.lower())
            raise ValueError(
                f"there is no time zone {self.time_zone!r}: give an IANA name, such as {(near or ['Europe/Vienna'])[0]}"
            ) from error
        return self

    def output_type(self, kinds: Sequence[pa.DataType]) -> pa.DataType:
        need(kinds[0], "timestamps, or whole seconds since 1970", pa.types.is_timestamp(kinds[0]) or pa.types.is_integer(kinds[0]))
        return pa.int64()

    def run(self, arrays: Sequence[pa.Array]) -> pa.Array:
        return self._hours(arrays[0])

    def _hours(self, array: pa.Array) -> Any:
        unit = "s" if pa.types.is_integer(array.type) else array.type.unit
        times = numbers(array if pa.types.is_integer(array.type) else array.cast(pa.int64()))
        known = (
            (times >= _FIRST_S * _PER_SECOND[unit]) & (times < _END_S * _PER_SECOND[unit]) & array.is_valid().to_numpy(zero_copy_only=False)
        )
        moments = pa.array(np.where(known, times, 0).astype(np.int64), pa.timestamp(unit, tz="UTC"), mask=~known)
        return pc.hour(moments.cast(pa.timestamp(unit, tz=self.time_zone)))
