from __future__ import annotations

import pytest

from tuneyard.storage.retry import with_retries


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def __call__(self) -> float:
        return self.now_s


class Flaky:
    def __init__(self, failures: int, error: type[Exception] = ConnectionError) -> None:
        self.failures, self.error, self.calls = failures, error, 0

    def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error("gone")
        return "done"


def is_lost(error: Exception) -> bool:
    return isinstance(error, ConnectionError)


def test_what_passes_is_tried_again() -> None:
    clock = Clock()
    assert with_retries(Flaky(5), is_lost, sleep=clock.sleep, clock=clock) == "done"
    assert 0 < clock.now_s < 60


def test_what_does_not_pass_is_raised_at_once() -> None:
    action = Flaky(1, ValueError)
    with pytest.raises(ValueError, match="gone"):
        with_retries(action, is_lost)
    assert action.calls == 1


def test_patience_ends() -> None:
    clock = Clock()
    with pytest.raises(ConnectionError):
        with_retries(Flaky(1000), is_lost, total_s=30, sleep=clock.sleep, clock=clock)
    assert clock.now_s <= 30
