"""What a score task tells of the charges of its endpoints, also where they cannot be recorded."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tuneyard.api import StorageError
from tuneyard.runtime.score.pool import _tell_charge
from tuneyard.tracking import Charged, Event, Warned


def told(charged: Any) -> list[Event]:
    """The events of an attempt whose tokens beside its parts cost 5."""
    seen: list[Event] = []
    work: Any = SimpleNamespace(request=SimpleNamespace(name="judge"), charged=charged, charged_beside=sum)
    _tell_charge(work, [2.0, 3.0], seen.append)
    return seen


def test_a_charge_that_cannot_be_recorded_is_that_of_no_part_and_a_warning() -> None:
    def fail(_: Sequence[float]) -> float:
        raise StorageError("the disk is full", "free some space")

    warned, charged = told(fail)
    assert isinstance(warned, Warned)
    assert "counts only if the task is resumed: the disk is full" in warned.message
    assert isinstance(charged, Charged)
    assert charged.amount == 5.0


@pytest.mark.parametrize("amount", [0.0, 7.0])
def test_a_charge_is_told(amount: float) -> None:
    (charged,) = told(lambda _: amount)
    assert isinstance(charged, Charged)
    assert charged.amount == amount


def test_a_task_without_a_price_tells_none() -> None:
    assert told(lambda _: None) == []
