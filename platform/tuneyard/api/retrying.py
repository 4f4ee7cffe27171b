"""Reactions to a failed attempt, in one table by kind of failure: for restarts on the same machines, and for attempts of a hub. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tuneyard.api.errors import FailureKind
from tuneyard.api.jobspec import Retries

Answer = Literal["stop", "again", "shrink"]
"""shrink: retry with a smaller micro-batch and the same global batch."""
Place = Literal["here", "elsewhere"]
"""here: on the same machines, at once. elsewhere: as a new attempt of a hub, which starts later and may get other machines."""


@dataclass(frozen=True)
class _Follows:
    """The answer at each place, if `retries` allows another attempt."""

    here: Answer
    elsewhere: Answer


_TABLE: Mapping[FailureKind, _Follows] = {
    FailureKind.USER_ERROR: _Follows(here="again", elsewhere="again"),
    FailureKind.NODE_LOST: _Follows(here="again", elsewhere="again"),
    FailureKind.NETWORK: _Follows(here="again", elsewhere="again"),
    # The attempt shrinks the micro-batch on its own machines before it reports this failure.
    FailureKind.OUT_OF_MEMORY: _Follows(here="shrink", elsewhere="stop"),
    # A full disk stays full, and a bug fails again at the same step. Other machines, or a later time, may help.
    FailureKind.STORAGE: _Follows(here="stop", elsewhere="again"),
    FailureKind.INTERNAL: _Follows(here="stop", elsewhere="again"),
    FailureKind.PREEMPTED: _Follows(here="stop", elsewhere="again"),
    FailureKind.IMAGE: _Follows(here="stop", elsewhere="stop"),
    FailureKind.DEADLINE: _Follows(here="stop", elsewhere="stop"),
    FailureKind.CANCELLED: _Follows(here="stop", elsewhere="stop"),
}


def answer_to(kind: FailureKind, retries: Retries, *, failures: int, place: Place) -> Answer:
    """The reaction to a failure of this kind. `failures`: failed attempts of the task so far, including this one."""
    if failures > retries.max or not _allows(retries, kind):
        return "stop"
    follows = _TABLE[kind]
    return follows.here if place == "here" else follows.elsewhere


def _allows(retries: Retries, kind: FailureKind) -> bool:
    """Whether the JobSpec allows another attempt after a failure of this kind."""
    if kind is FailureKind.USER_ERROR:
        return retries.on_user_error == "retry"
    if kind is FailureKind.OUT_OF_MEMORY:
        return retries.on_out_of_memory == "shrink"
    if kind in (FailureKind.NODE_LOST, FailureKind.NETWORK):
        return retries.on_node_failure != "stop"
    return True
