"""The machines of a simulation: failed machines, jobs by machine, and a check that no GPU is given twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from tuneyard.federation.world import Member

Slot = tuple[str, str]
"""Member and node."""


class Fleet:
    """GPUs of all nodes, counted independently of the scheduler: the figures of a simulation rest on this count."""

    def __init__(self, members: Iterable[Member]) -> None:
        self.members = {member.name: member for member in members}
        self.gpus = {(member.name, node.name): node.gpus for member in self.members.values() for node in member.nodes}
        self.total = sum(self.gpus.values())
        self.held = 0
        self.away = 0
        """GPUs on machines that are away."""
        self._free = dict(self.gpus)
        self._here: dict[Slot, set[int]] = defaultdict(set)
        self._away: dict[Slot, int] = defaultdict(int)
        """The number of failures that keep a node away: its own, and its member's."""
        self._members_away: set[str] = set()

    def take(self, job: int, member: str, nodes: Mapping[str, int]) -> None:
        """Give GPUs to a job. Raises RuntimeError where the GPUs are held or away, which is a bug in the scheduler."""
        for node, gpus in nodes.items():
            slot = (member, node)
            if self._away[slot] or self._free[slot] < gpus:
                there = 0 if self._away[slot] else self._free[slot]
                raise RuntimeError(f"the scheduler placed {gpus} GPUs on {member}/{node}, which has {there}")
            self._free[slot] -= gpus
            self._here[slot].add(job)
            self.held += gpus

    def give_back(self, job: int, member: str, nodes: Mapping[str, int]) -> None:
        for node, gpus in nodes.items():
            slot = (member, node)
            self._free[slot] += gpus
            self._here[slot].discard(job)
            self.held -= gpus

    def lose(self, what: Slot) -> list[int]:
        """Take a node away, or a whole member where the node name is empty. Returns the jobs that ran there, in their order."""
        member, node = what
        if not node:
            self._members_away.add(member)
        hit: set[int] = set()
        for slot in self._slots(what):
            if not self._away[slot]:
                self.away += self.gpus[slot]
            self._away[slot] += 1
            hit |= self._here[slot]
        return sorted(hit)

    def mend(self, what: Slot) -> None:
        """Bring a node or a member back."""
        member, node = what
        if not node:
            self._members_away.discard(member)
        for slot in self._slots(what):
            self._away[slot] -= 1
            if not self._away[slot]:
                self.away -= self.gpus[slot]

    def facts(self, name: str) -> Member:
        """A member as the scheduler sees it. A node that is away stays in the inventory without free GPUs, so that jobs wait for it."""
        member = self.members[name]
        nodes = tuple(replace(node, free=0 if self._away[name, node.name] else node.gpus) for node in member.nodes)
        away = name in self._members_away
        return replace(member, nodes=nodes, usable=member.usable and not away, why_not="its heartbeat is late" if away else member.why_not)

    @property
    def whole(self) -> bool:
        """Whether no machine is away."""
        return self.away == 0 and not self._members_away

    def _slots(self, what: Slot) -> Iterator[Slot]:
        member, node = what
        if node:
            yield what
        else:
            yield from ((member, each.name) for each in self.members[member].nodes)
