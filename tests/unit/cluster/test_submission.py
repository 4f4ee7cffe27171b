"""What submitting means where a job of that name is there already."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.hub_jobs import make_attempt, make_held, make_hub_job

from tuneyard.api import BadInput
from tuneyard.cluster.submission import differences, resubmit

SPEC = make_held()["spec"]
OTHER = make_held(steps=100)["spec"]
RUNNING = {"phase": "Running", "attempts": [make_attempt()]}


@pytest.mark.parametrize(
    ("status", "wanted", "outcome"),
    [
        (None, SPEC, "unchanged"),
        ({"phase": "Queued"}, SPEC, "unchanged"),
        (RUNNING, SPEC, "unchanged"),
        ({"phase": "Succeeded"}, SPEC, "unchanged"),
        (None, OTHER, "updated"),
        ({"phase": "Queued"}, OTHER, "updated"),
        ({"phase": "Failed", "message": "spec.storage.output: say where"}, OTHER, "updated"),
    ],
)
def test_what_is_fine(status: dict[str, Any] | None, wanted: dict[str, Any], outcome: str) -> None:
    assert resubmit(make_hub_job(status), wanted) == outcome


@pytest.mark.parametrize(
    ("held", "wanted", "cause", "next_step"),
    [
        (
            {"status": RUNNING},
            OTHER,
            "is Running already, and the file differs from it: spec.tasks[0].train.steps: 120 -> 100",
            "tuneyard cancel",
        ),
        ({"status": {"phase": "Queued", "attempts": [make_attempt(phase="Failed")]}}, OTHER, "is Queued already, and", "another name"),
        (
            {"status": {"phase": "Failed", "message": "no output"}},
            SPEC,
            "has ended already (Failed: no output)",
            "kubectl delete jobspec support-bot -n maps",
        ),
        ({"status": {"phase": "Failed", "attempts": [make_attempt()]}}, OTHER, "has ended already (Failed), and", "another name"),
        ({"status": {"phase": "Cancelled"}, "cancelled": True}, OTHER, "has ended already (Cancelled), and", "another name"),
        ({"status": {"phase": "Succeeded"}}, OTHER, "has ended already (Succeeded), and the file differs", "under another name"),
        ({"status": RUNNING, "suspend": True}, SPEC, "is suspended, and the file is not", "tuneyard resume support-bot -n maps"),
        ({"status": RUNNING, "cancelled": True}, SPEC, "is being cancelled", "when it has ended"),
        ({"deleting": True}, SPEC, "is being deleted", "kubectl wait --for=delete jobspec/support-bot -n maps"),
    ],
)
def test_what_is_refused(held: dict[str, Any], wanted: dict[str, Any], cause: str, next_step: str) -> None:
    with pytest.raises(BadInput) as refused:
        resubmit(make_hub_job(**held), wanted)
    assert cause in refused.value.cause
    assert next_step in refused.value.next_step


def test_many_differences_are_counted_after_the_fifth() -> None:
    wanted = SPEC | {
        "env": [{"name": f"V{number}", "value": "x"} for number in range(3)],
        **{f"field{number}": number for number in range(6)},
    }
    with pytest.raises(BadInput, match="; and 2 more"):
        resubmit(make_hub_job(RUNNING), wanted)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1, max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(json_values, json_values)
def test_there_are_differences_exactly_between_what_differs(one: Any, other: Any) -> None:
    def bare(value: Any) -> Any:  # API servers drop nulls: absent and null are the same
        if isinstance(value, dict):
            return {key: bare(inner) for key, inner in value.items() if inner is not None}
        return [bare(inner) for inner in value] if isinstance(value, list) else value

    assert not list(differences(one, one, "value"))
    if bare(one) == one and bare(other) == other and not _equal_but_typed(one, other):
        assert bool(list(differences(one, other, "value"))) == (one != other)


def _equal_but_typed(one: Any, other: Any) -> bool:
    return repr(one) != repr(other) and one == other
