from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.tracking.formats import duration, gigabytes, number, percent


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (0.0, "0"),
        (7, "7"),
        (1234, "1,234"),
        (12_345, "12.3k"),
        (1234.5, "1.23k"),
        (999.9, "1.00k"),
        (0.012345, "0.0123"),
        (2e-7, "2.00e-07"),
        (3.4e15, "3400T"),
        (-5.5, "-5.50"),
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "–"),
    ],
)
def test_numbers_keep_three_digits(value: float | None, shown: str) -> None:
    assert number(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.0123, "12.3 ms"), (1.5, "1.50 s"), (75, "1 min 15 s"), (59.99, "60.0 s"), (7322, "2 h 2 min"), (200_000, "2 d 7 h"), (None, "–")],
)
def test_durations(seconds: float | None, shown: str) -> None:
    assert duration(seconds) == shown


def test_shares_and_memory() -> None:
    assert percent(0.4173) == "41.7%"
    assert percent(0.00012) == "0.012%"
    assert percent(0.0) == "0%"
    assert gigabytes(54.23) == "54.2 GB"
    assert gigabytes(None) == "–"


@given(st.floats(allow_nan=True, allow_infinity=True) | st.integers() | st.none())
def test_every_number_has_a_short_form(value: float | None) -> None:
    assert number(value)
    if value is None or abs(value) < 1e18:
        assert len(number(value)) <= 10
