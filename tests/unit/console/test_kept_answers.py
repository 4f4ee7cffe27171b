"""Answers of a hub that a console keeps for its pages."""

from __future__ import annotations

import time

import pytest

from tuneyard.console.hub.reader import STALE_S, Kept


def test_an_answer_is_at_hand_until_it_is_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def read() -> int:
        asked.append(time.monotonic())
        return len(asked)

    kept = Kept(read)
    assert not kept.is_at_hand
    assert (kept(), kept(), kept.is_at_hand) == (1, 1, True)
    later = time.monotonic() + STALE_S
    monkeypatch.setattr("time.monotonic", lambda: later)
    assert not kept.is_at_hand, "the overview does not wait for whole objects that it once had"
    assert (kept(), kept.is_at_hand) == (2, True)
    kept.forget()
    assert not kept.is_at_hand


def test_an_answer_is_as_old_as_what_it_is_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    part: Kept[int] = Kept(lambda: 1)
    began = time.monotonic()
    part()
    monkeypatch.setattr("time.monotonic", lambda: began + STALE_S - 1)
    whole = Kept(lambda: 2, made_of=(part,))
    assert whole() == 2
    assert whole.age_s >= STALE_S - 2, "rights that the part still shows are gone in time from the whole"
    monkeypatch.setattr("time.monotonic", lambda: began + STALE_S + 1)
    assert not whole.is_at_hand
