"""What follows each kind of failure, on the same machines and by a hub."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.attempts import attempt

from tuneyard.api import FailureKind, Retries
from tuneyard.api.retrying import Place, answer_to
from tuneyard_operators.hub import retries as retries_of_hub

PLACES: tuple[Place, ...] = ("here", "elsewhere")
RETRIES = st.builds(
    Retries,
    max=st.integers(0, 5),
    on_out_of_memory=st.sampled_from(["shrink", "stop"]),
    on_node_failure=st.sampled_from(["elsewhere", "retry", "stop"]),
    on_user_error=st.sampled_from(["stop", "retry"]),
)


@pytest.mark.parametrize(
    ("kind", "here", "elsewhere"),
    [
        (FailureKind.NODE_LOST, "again", "again"),
        (FailureKind.NETWORK, "again", "again"),
        (FailureKind.OUT_OF_MEMORY, "shrink", "stop"),
        (FailureKind.USER_ERROR, "stop", "stop"),
        (FailureKind.STORAGE, "stop", "again"),
        (FailureKind.INTERNAL, "stop", "again"),
        (FailureKind.PREEMPTED, "stop", "again"),
        (FailureKind.IMAGE, "stop", "stop"),
        (FailureKind.DEADLINE, "stop", "stop"),
        (FailureKind.CANCELLED, "stop", "stop"),
    ],
)
def test_each_kind_is_treated_its_own_way(kind: FailureKind, here: str, elsewhere: str) -> None:
    assert answer_to(kind, Retries(), failures=1, place="here") == here
    assert answer_to(kind, Retries(), failures=1, place="elsewhere") == elsewhere


@pytest.mark.parametrize("place", PLACES)
def test_the_jobspec_may_ask_for_something_else(place: Place) -> None:
    retries = Retries(on_out_of_memory="stop", on_node_failure="stop", on_user_error="retry")
    assert answer_to(FailureKind.OUT_OF_MEMORY, retries, failures=1, place=place) == "stop"
    assert answer_to(FailureKind.NODE_LOST, retries, failures=1, place=place) == "stop"
    assert answer_to(FailureKind.NETWORK, retries, failures=1, place=place) == "stop"
    assert answer_to(FailureKind.USER_ERROR, retries, failures=1, place=place) == "again"


@given(kind=st.sampled_from(FailureKind), place=st.sampled_from(PLACES), retries=RETRIES)
def test_failures_are_followed_as_often_as_retries_says(kind: FailureKind, place: Place, retries: Retries) -> None:
    answers = [answer_to(kind, retries, failures=failures, place=place) for failures in range(1, retries.max + 1)]
    assert len(set(answers)) <= 1, "the answer is the same until the failures are used up"
    assert answer_to(kind, retries, failures=retries.max + 1, place=place) == "stop"


@given(kind=st.sampled_from(FailureKind), failures=st.integers(1, 6), retries=RETRIES)
def test_hub_and_local_runs_differ_only_where_their_machines_do(kind: FailureKind, failures: int, retries: Retries) -> None:
    """A hub has other machines and other hours for broken storage and bugs; what it hears of memory is final."""
    attempts = [attempt(number, failure=str(kind)) for number in range(1, failures + 1)]
    by_hub = retries_of_hub.answer_to(attempts[-1], attempts, retries)
    assert by_hub == answer_to(kind, retries, failures=failures, place="elsewhere")
    if kind not in (FailureKind.STORAGE, FailureKind.INTERNAL, FailureKind.PREEMPTED, FailureKind.OUT_OF_MEMORY):
        assert by_hub == answer_to(kind, retries, failures=failures, place="here")
