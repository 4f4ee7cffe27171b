"""The observed state of an attempt on its member, as plain values: the input of every decision about the attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tuneyard.api import AttemptReport
from tuneyard.api.serve import SERVING
from tuneyard_operators.rendering import DATA_GROUP, DOOR

Object = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Observed:
    """One attempt on its member.

    `known`: False if the member has not been listed yet, or cannot be reached. `unreachable_s`: seconds without the member, 0 if it can be
    reached. `pods`: existing pods; `remains`: pods that have failed and vanished, as last seen (KubeRay replaces failed pods at once).
    `silent_s`: seconds since the report last changed. `secret`, `policy`: whether the attempt's Secret and NetworkPolicy exist.
    `unready_nodes`: nodes that are not ready. `unreadable`: unreadable fields of the report, in words. `refused`: why the member refuses
    the RayJob. `underway`: the hub is creating or removing the attempt's objects now, so a missing object may exist a moment later.
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
        """Whether all objects of the attempt are removed from the member."""
        there = self.rayjob is not None or self.report is not None or self.secret or self.policy or self.pods
        return self.known and not there and not self.underway

    @property
    def door(self) -> Object | None:
        """The pod that hears requests while the attempt's server sleeps, unless it has ended or is being removed."""
        own = (pod for pod in self.pods if DOOR in pod["metadata"].get("labels", {}) and "deletionTimestamp" not in pod["metadata"])
        return next((pod for pod in own if pod.get("status", {}).get("phase") not in ("Failed", "Succeeded")), None)

    @property
    def door_is_open(self) -> bool:
        """Whether that pod is ready."""
        conditions = ((self.door or {}).get("status") or {}).get("conditions") or []
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    @property
    def has_machines(self) -> bool:
        """Whether the attempt has, or may have, pods other than that one."""
        others = any(DOOR not in pod["metadata"].get("labels", {}) for pod in self.pods)
        return self.rayjob is not None or others or self.underway

    @property
    def answers(self) -> bool:
        """Whether the attempt's server answers requests, by its report."""
        state = self.report.status if self.report is not None else None
        return state is not None and state.progress.summary.startswith(SERVING)

    @property
    def without_data_pods(self) -> Observed:
        """The same without the pods of data workers: a running attempt survives their failure."""
        return replace(self, pods=_not_data(self.pods), remains=_not_data(self.remains))


def _not_data(pods: Sequence[Object]) -> Sequence[Object]:
    return [pod for pod in pods if pod["metadata"].get("labels", {}).get("ray.io/group") != DATA_GROUP]


UNSEEN = Observed(known=False)
