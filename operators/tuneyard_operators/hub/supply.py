"""Gives changed members and teams to the scheduler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tuneyard.api import Cluster, NodeInventory
from tuneyard.federation import Scheduler, Team, member_of, sku_names, unknown_team
from tuneyard_operators.hub.member import Member


@dataclass(frozen=True)
class _Facts:
    """The facts about a member for the scheduler. The hub makes new objects for changes, so a comparison by identity is enough."""

    nodes: Sequence[NodeInventory]
    cluster: Cluster
    why_not: str

    def are_those(self, other: _Facts | None) -> bool:
        return other is not None and self.nodes is other.nodes and self.cluster is other.cluster and self.why_not == other.why_not


class Supply:
    """The members and teams that the scheduler has."""

    def __init__(self) -> None:
        self.skus: frozenset[str] = frozenset()
        """SKUs of all members so far, by the catalog's names. Asks are checked against them."""
        self._told: dict[str, _Facts] = {}
        self._broken: dict[str, _Facts] = {}
        """Facts of members that made the scheduler raise an error."""
        self._teams: dict[str, Team] = {}
        self._missing_teams: set[str] = set()
        """Teams that jobs name but that do not exist."""

    def learn_skus(self, members: Iterable[Member]) -> bool:
        """Add the SKUs of members. True if some are new. SKUs of a deleted member stay: it may come back."""
        before = self.skus
        self.skus = before.union(*(sku_names(member.cluster).values() for member in members))
        return self.skus != before

    def tell_members(self, scheduler: Scheduler, members: Iterable[Member], away: Mapping[str, str]) -> None:
        """Give the scheduler the members that have changed. `away`: unusable members, each with the reason.

        Raises the scheduler's error about a member; that member is left out until it changes.
        """
        present = set()
        for member in members:
            present.add(member.name)
            facts = _Facts(member.inventory(), member.cluster, away.get(member.name, ""))
            if facts.are_those(self._told.get(member.name)) or facts.are_those(self._broken.get(member.name)):
                continue
            try:
                scheduler.set_member(member_of(facts.cluster, facts.nodes, why_not=facts.why_not))
            except Exception:
                self._broken[member.name] = facts
                raise
            self._told[member.name] = facts
            self._broken.pop(member.name, None)
        for name in self._told.keys() - present:
            del self._told[name]
            scheduler.remove_member(name)
        for name in self._broken.keys() - present:
            del self._broken[name]

    def tell_teams(self, scheduler: Scheduler, teams: Iterable[Team]) -> None:
        """Give the scheduler all existing teams."""
        known = {team.name: team for team in teams}
        for name in (self._teams.keys() | self._missing_teams) - known.keys():
            scheduler.set_team(Team(name=name))
        for team in known.values():
            scheduler.set_team(team)
        self._teams = known
        self._missing_teams.clear()

    def tell_missing_teams(self, scheduler: Scheduler, named: Iterable[str]) -> None:
        """Close the teams that jobs name but that do not exist: their jobs wait. Without any Team object, every team is open."""
        if self._teams:
            for team in set(named) - self._teams.keys() - self._missing_teams:
                scheduler.set_team(unknown_team(team, self._teams))
                self._missing_teams.add(team)

    def start_over(self, scheduler: Scheduler) -> None:
        """Give a new scheduler the teams. It gets the members in the next cycle."""
        self._told.clear()
        self._missing_teams.clear()
        for team in self._teams.values():
            scheduler.set_team(team)
