"""Bounds the values of the label `team`: whoever may create a JobSpec chooses its team."""

from __future__ import annotations

from collections.abc import Iterable

MOST_TEAMS = 200
OTHER_TEAMS = "_other"
"""Stands for all further teams. No team can have this name: names of Kubernetes hold no underscore."""


class TeamNames:
    """The first `MOST_TEAMS` teams keep their names for the life of the process. Teams with an object come first."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def know(self, teams: Iterable[str]) -> None:
        """Keep the names of teams, as far as there is room."""
        for team in teams:
            self.label(team)

    def label(self, team: str) -> str:
        """The team's name, or `OTHER_TEAMS`."""
        if team not in self._known:
            if len(self._known) >= MOST_TEAMS:
                return OTHER_TEAMS
            self._known.add(team)
        return team
