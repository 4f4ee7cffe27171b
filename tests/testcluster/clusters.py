"""A hub and its members in one folder, started side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.testcluster.binaries import have_built
from tests.testcluster.contained import ContainedHub, ContainedMember
from tests.testcluster.engines import kept
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
        return cls._named(folder, [f"member-{number + 1}" for number in range(members)])

    @classmethod
    def found(cls, folder: Path) -> Clusters:
        """What lies in a folder, running or not."""
        return cls._named(folder, sorted(path.parent.name for path in folder.glob("*/network.json") if path.parent.name != "hub"))

    @classmethod
    def _named(cls, folder: Path, names: Iterable[str]) -> Clusters:
        of_hub, of_member = (ContainedHub, ContainedMember) if kept(folder) else (Hub, Member)
        return cls(of_hub("hub", folder / "hub"), tuple(of_member(name, folder / name) for name in names))

    @property
    def all(self) -> Sequence[Hub]:
        return (self.hub, *self.members)

    def start(self) -> None:
        have_built(list(dict.fromkeys(program for cluster in self.all for program in cluster.programs())))

        def boot(cluster: Hub) -> None:
            with stage(f"{cluster.name} is up"):
                cluster.start()

        with ThreadPoolExecutor(len(self.all)) as pool:
            for _ in pool.map(boot, self.all):
                pass

    def close(self) -> None:
        for cluster in self.all:
            cluster.close()
