"""Clusters with Tuneyard on them that stay until they are taken down: `make cluster-up`, `make cluster-down`."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.testcluster.clusters import Clusters
from tests.testcluster.engines import Wanted, choose, kept
from tests.testcluster.install import OPERATOR, install, start_operator
from tests.testcluster.mounts import remove_folder
from tests.testcluster.processes import Processes
from tests.testcluster.progress import say, stage
from tests.testcluster.unavailable import Unavailable

DEFAULT_FOLDER = Path("/tmp/tuneyard-cluster")
_COMPLETE = "up.json"


def up(folder: Path, *, members: int, operator: bool = True, options: Sequence[str] = (), wanted: Wanted = "auto") -> Path:
    """Path of the hub's kubeconfig. Clusters that run already stay; what a killed run left is removed first.
    `options`: of the operator. `wanted`: what makes the clusters (`engines.choose`). Raises Unavailable."""
    with _alone(folder):
        if _runs(folder, members):
            made_with = tool.name if (tool := kept(folder)) is not None else "source"
            if wanted not in ("auto", made_with):
                raise Unavailable(f"the clusters in {folder} run already, and were made with {made_with}: `make cluster-down` first")
            own = Processes(folder / "processes")
            if operator and OPERATOR in own.names():
                own.start(OPERATOR)
            say(f"the clusters in {folder} run already; `make cluster-down` first for new ones")
            return Clusters.found(folder).hub.kubeconfig
        tool, reason = choose(wanted)
        say(reason)
        with stage("removed what was left"):
            _remove(folder)
        folder.mkdir(mode=0o700)
        if tool is not None:
            tool.keep(folder)
        clusters = Clusters.in_folder(folder, members)
        with stage("clusters are up"):
            clusters.start()
        with stage("installed Tuneyard"):
            storage = install(folder, clusters)
        if operator:
            with stage("the operator is ready"):
                start_operator(folder, clusters.hub, storage, options)
        environment = folder / "storage.env"
        environment.write_text("".join(f"export {name}={value}\n" for name, value in storage.environment.items()))
        say(f"to reach its storage from here: source {environment}")
        (folder / _COMPLETE).write_text(json.dumps({"members": members}))
        return clusters.hub.kubeconfig


def down(folder: Path) -> None:
    with _alone(folder):
        _remove(folder)


def status(folder: Path) -> dict[str, int | None]:
    """Process ids by cluster and component; None for what does not run."""
    found = {f"{cluster.name}/{name}": pid for cluster in Clusters.found(folder).all for name, pid in cluster.components().items()}
    own = Processes(folder / "processes")
    return {**found, **{name: own.pid(name) for name in own.names()}}


def _runs(folder: Path, members: int) -> bool:
    complete = folder / _COMPLETE
    if not complete.exists() or json.loads(complete.read_text())["members"] != members:
        return False
    return all(pid is not None for name, pid in status(folder).items() if name != OPERATOR)


def _remove(folder: Path) -> None:
    Processes(folder / "processes").end_all()
    Clusters.found(folder).close()
    remove_folder(folder)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Of two that are told to bring the same clusters up or down, one waits."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
