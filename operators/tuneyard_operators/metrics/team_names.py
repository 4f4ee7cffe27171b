"""Bounds the values of the label `team`: whoever may create a JobSpec chooses its team."""

from __future__ import annotations

from collections.abc import Iterable, Set
from itertools import chain

MOST_TEAMS = 200
OTHER_TEAMS = "_other"
"""Stands for all further teams. No team can have this name: names of Kubernetes hold no underscore."""


class TeamNames:
    """At most `MOST_TEAMS` names. Teams with an object come first. Names that only jobs have share the rest.

    A name that no object and no job has any more keeps its place until another needs it.
    """

    def __init__(self) -> None:
        self._owned: dict[str, None] = {}
        self._named: dict[str, None] = {}

    def know(self, objects: Iterable[str], jobs: Set[str]) -> set[str]:
        """Give the places anew. `objects`: names of the Team objects; `jobs`: teams of the JobSpecs. Returns the names that lost theirs."""
        before, present = self._owned | self._named, dict.fromkeys(objects)
        first = (team for team in before if team in present)
        self._owned = _first(chain(first, present), MOST_TEAMS)
        stay, gone = [team for team in before if team in jobs], [team for team in before if team not in jobs]
        others = (team for team in chain(stay, sorted(jobs), gone) if team not in self._owned)
        self._named = _first(others, MOST_TEAMS - len(self._owned))
        return before.keys() - self._owned.keys() - self._named.keys()

    def label(self, team: str) -> str:
        """The team's name, or `OTHER_TEAMS`."""
        if team not in self._owned and team not in self._named:
            if len(self._owned) + len(self._named) >= MOST_TEAMS:
                return OTHER_TEAMS
            self._named[team] = None
        return team


def _first(teams: Iterable[str], most: int) -> dict[str, None]:
    """The first different names, in their order."""
    found: dict[str, None] = {}
    for team in teams:
        if len(found) >= most:
            break
        found[team] = None
    return found
