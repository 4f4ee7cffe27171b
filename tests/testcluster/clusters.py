"""A hub and its members in one folder, started side by side."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.testcluster.binaries import binary
from tests.testcluster.hub import Hub
from tests.testcluster.member import Member
from tests.testcluster.progress import stage


@dataclass(frozen=True)
class Clusters:
    hub: Hub
    members: tuple[Member, ...]

    @classmethod
    def in_folder(cls, folder: Path, members: int) -> Clusters:
        """A hub and members with a real node and KubeRay each; not started."""
        names = [f"member-{number + 1}" for number in range(members)]
        return cls(Hub("hub", folder / "hub"), tuple(Member(name, folder / name) for name in names))

    @classmethod
    def found(cls, folder: Path) -> Clusters:
        """What lies in a folder, running or not."""
        names = sorted(path.parent.name for path in folder.glob("*/network.json") if path.parent.name != "hub")
        return cls(Hub("hub", folder / "hub"), tuple(Member(name, folder / name) for name in names))

    @property
    def all(self) -> Sequence[Hub]:
        return (self.hub, *self.members)

    def start(self) -> None:
        # One after the other: two builds at once would compile what they share twice.
        for program in dict.fromkeys(program for cluster in self.all for program in cluster.programs()):
            binary(program)

        def boot(cluster: Hub) -> None:
            with stage(f"{cluster.name} is up"):
                cluster.start()

        with ThreadPoolExecutor(len(self.all)) as pool:
            for _ in pool.map(boot, self.all):
                pass

    def close(self) -> None:
        for cluster in self.all:
            cluster.close()
