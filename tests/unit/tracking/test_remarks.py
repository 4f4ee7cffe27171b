"""Remarks on a task: also that a run has changed its model next to nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tuneyard.tracking import remarks_of


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ({"kind": "train", "losses": [2.5], "steps": 1}, "a single step"),
        ({"kind": "train", "losses": [2.5, 2.5, 2.5], "steps": 3}, "the loss stayed at 2.5 in all 3 steps"),
        ({"kind": "train", "losses": [0.0, 0.0], "steps": 2}, "the loss stayed at 0 in all 2 steps"),
        ({"kind": "train", "losses": [2.5, 2.4], "steps": 2}, ""),
        ({"kind": "train", "losses": [2.5], "steps": 40}, ""),
        ({"kind": "score", "losses": [2.5], "steps": 1}, ""),
        ({"kind": "train", "losses": [2.5], "steps": 1, "status": "failed"}, ""),
    ],
)
def test_a_run_that_has_learned_nothing_is_told(task: dict[str, Any], words: str) -> None:
    [*said] = remarks_of(task)
    assert bool(said) is bool(words)
    assert words in "".join(said)
