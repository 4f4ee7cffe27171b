"""Real clusters for tests: `home` has real pods, `plain` has none; a whole run shares either. `api_servers` makes what a test asks for."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.cluster.home import home, storage_of
from tests.testcluster import Hub, Member, Unavailable
from tests.testcluster.clusters import Clusters
from tests.testcluster.fake_nodes import FakeNodes
from tests.testcluster.install import write_crds
from tests.testcluster.leftovers import own_folder, remove

__all__ = ["home", "storage_of"]
ApiServers = Callable[..., Clusters]
MEMBERS = ("member-1", "member-2")
_FROM_NOTHING_S = 3600
"""The first test on a machine waits for Go to build Kubernetes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_FROM_NOTHING_S))


@pytest.fixture(scope="session")
def cluster_folder() -> Iterator[Path]:
    folder = own_folder()
    yield folder
    remove(folder)


def started(clusters: Clusters) -> Clusters:
    """`clusters`, started; where they cannot run, the test is skipped and says why."""
    try:
        clusters.start()
    except Unavailable as reason:
        clusters.close()
        pytest.skip(f"NO CLUSTERS ON THIS MACHINE: {reason}")
    except BaseException:
        clusters.close()
        raise
    return clusters


PAIR = {"tuneyard.test/pair": "yes"}
"""Label of two of the machines of `plain`'s first member."""


@pytest.fixture(scope="session")
def plain(cluster_folder: Path) -> Iterator[Clusters]:
    """A hub and two members with fake machines of eight GPUs. Files use it in turn: each prepares what it needs, and leaves no Cluster."""
    folder = cluster_folder / "plain"
    machines = ((FakeNodes("gpu", 50), FakeNodes("pair", 2, labels=PAIR)), (FakeNodes("gpu", 50),))
    members = [Member(name, folder / name, fake=fake, with_kuberay=False) for name, fake in zip(MEMBERS, machines, strict=True)]
    made = started(Clusters(Hub("hub", folder / "hub"), tuple(members)))
    yield made
    made.close()


@pytest.fixture(scope="session")
def hub_server(cluster_folder: Path) -> Iterator[Hub]:
    """A hub without an operator, with the CRDs and the namespace `maps`."""
    alone = started(Clusters(Hub("client", cluster_folder / "client"), ()))
    crds = write_crds(cluster_folder / "crds")
    alone.hub.apply(*crds, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "maps"}})
    yield alone.hub
    alone.close()


@pytest.fixture
def api_servers(cluster_folder: Path) -> Iterator[ApiServers]:
    """A function that starts a hub and `members` members with fake nodes each; they end with the test."""
    made: list[Clusters] = []
    numbers = itertools.count()

    def start(members: int = 1, nodes: Sequence[FakeNodes] = (FakeNodes("node", 4),), *, kuberay: bool = False) -> Clusters:
        folder = next(path for number in numbers if not (path := cluster_folder / str(number)).exists())
        names = [f"member-{number + 1}" for number in range(members)]
        each = tuple(Member(name, folder / name, fake=tuple(nodes), with_kuberay=kuberay) for name in names)
        made.append(Clusters(Hub("hub", folder / "hub"), each))
        return started(made[-1])

    yield start
    for one in made:
        one.close()


@pytest.fixture
def of_the_author() -> Iterator[tuple[str, list[bytes]]]:
    """A server of somebody else's: its address, and what it has been sent."""
    heard: list[bytes] = []

    class Listener(BaseHTTPRequestHandler):
        def handle(self) -> None:
            heard.append(self.request.recv(65536))

    with ThreadingHTTPServer(("127.0.0.1", 0), Listener) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", heard
        server.shutdown()
        thread.join()
