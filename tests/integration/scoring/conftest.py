"""One Ray session, and one fork server with vLLM loaded, for all tests of scoring that need them."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.clusters.machines import shared_warm_servers

from tuneyard.runtime.sessions.session import ray_session
from tuneyard.scoring import ScoreRequest

Score = Callable[..., Any]
DRIVER = """
import pickle, sys
from tuneyard.runtime.score.pool import score
from tuneyard.runtime.sessions.session import ray_session
with ray_session(address=None, cpus=2, gpus=0, values={}, setup=[], secrets=[], run="test"):
    request, server = pickle.load(open(sys.argv[1], "rb"))
    score(request, server=server)
"""


@pytest.fixture(scope="session")
def engine_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of the server. Jobs of this process find it as in a worker pod, by TUNEYARD_WARM_SERVERS."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with shared_warm_servers(tmp_path_factory.mktemp("warm"), environment, "engines") as folder:
        yield folder / "engines"


@pytest.fixture(scope="session")
def ray_here() -> Iterator[None]:
    with ray_session(address=None, cpus=2, gpus=0, values={}, setup=[], secrets=[], run="test"):
        yield


@pytest.fixture(scope="session")
def score(ray_here: None, engine_server: Path) -> Score:  # noqa: ARG001  # needed, and not by name
    """`score` in the Ray session of these tests. Its engines are forks."""
    from tuneyard.runtime.score import pool

    return partial(pool.score, server=engine_server)


def score_until_killed(request: ScoreRequest, parts: int, server: Path | None = None) -> int:
    """Score with a driver and a Ray of its own, and kill the driver once `parts` parts are committed. Returns how many are then."""
    output = Path(request.output)
    asked = output.with_suffix(".pickle")
    asked.write_bytes(pickle.dumps((request, server)))
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(asked)])
    while parts_in(output) < parts:
        assert driver.poll() is None, "the driver ended before it could be killed"
        time.sleep(0.005)
    driver.kill()
    driver.wait()
    return parts_in(output)


def parts_in(output: Path) -> int:
    return len(list((output / "parts").glob("*.parquet")))


@contextmanager
def a_worker_killed(output: Path, parts: int, name: str) -> Iterator[None]:
    """In the block a worker of a pool is killed, once `parts` parts are committed. `name`: how the names of the workers' processes begin.
    The worker that has worked most is killed, which has parts in hand."""

    def kill() -> None:
        while parts_in(output) < parts:
            time.sleep(0.005)
        worked: dict[int, float] = {}
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # Ray starts and ends processes all the time
                if process.name().startswith(name):
                    worked[process.pid] = process.cpu_times().user
        killed.append(max(worked, key=worked.__getitem__))
        os.kill(killed[0], signal.SIGKILL)

    killed: list[int] = []
    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    yield
    killer.join(timeout=10)
    assert killed
