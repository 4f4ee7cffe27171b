"""What the hub sees of an attempt on its member, as plain values: the input of every decision about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tuneyard.api import AttemptReport
from tuneyard_operators.rendering import DATA_GROUP

Object = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Observed:
    """One attempt on its member.

    `known`: False where the member has not been listed yet, or cannot be reached; `unreachable_s`: for how long, 0 if it can be.
    `pods`: those that are there; `remains`: pods that have failed or vanished, as last seen (KubeRay replaces them at once).
    `silent_s`: since the report last changed. `secret`, `policy`: whether the attempt's Secret and NetworkPolicy are there.
    `unready_nodes`: nodes that do not answer. `unreadable`: what of its report cannot be read.
    `refused`: why the member does not take its RayJob. `underway`: the hub is creating or removing it at this moment: what is not there
    may be there the next.
    """

    known: bool = True
    unreachable_s: float = 0.0
    why_unreachable: str = ""
    rayjob: Object | None = None
    report: AttemptReport | None = None
    unreadable: str = ""
    secret: bool = False
    policy: bool = False
    pods: Sequence[Object] = ()
    remains: Sequence[Object] = ()
    silent_s: float = 0.0
    unready_nodes: frozenset[str] = field(default_factory=frozenset)
    refused: str = ""
    underway: bool = False

    @property
    def nothing_left(self) -> bool:
        """Nothing of the attempt is on the member any more."""
        there = self.rayjob is not None or self.report is not None or self.secret or self.policy or self.pods
        return self.known and not there and not self.underway

    @property
    def without_data_pods(self) -> Observed:
        """The same without the pods of data workers: a running attempt loses nothing with them, whatever becomes of them."""
        return replace(self, pods=_not_data(self.pods), remains=_not_data(self.remains))


def _not_data(pods: Sequence[Object]) -> Sequence[Object]:
    return [pod for pod in pods if pod["metadata"].get("labels", {}).get("ray.io/group") != DATA_GROUP]


UNSEEN = Observed(known=False)
