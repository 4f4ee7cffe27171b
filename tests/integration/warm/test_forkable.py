"""A server refuses when a library's state would not survive a fork, with the reason; a library that is only loaded is none."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from tests.builders.drivers import write_driver

from tuneyard.warm import WarmServer, start

ROOT = Path(__file__).parents[3]
OBSTACLES = "tests.integration.warm.obstacles"
PROBES = "tests.integration.warm.probes"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_driver(tmp_path_factory.mktemp("driver") / "libraries")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, driver: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))


@pytest.fixture
def grpc_server() -> Iterator[int]:
    """Port of a server that answers `/test/Echo` with what it gets."""
    echo = grpc.unary_unary_rpc_method_handler(lambda request, _: request)
    server = grpc.server(ThreadPoolExecutor(1), handlers=[grpc.method_handlers_generic_handler("test", {"Echo": echo})])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield port
    server.stop(None)


@pytest.mark.parametrize(
    ("obstacle", "reason"),
    [
        ("cuda", "CUDA is initialized: a library has called the driver's cuInit"),
        # Its event engine starts and ends threads of its own.
        ("grpc channel", r"gRPC is initialized: its threads? (event_engine, )?grpc_global_tim runs?"),
        ("ray", "Ray is loaded, and its workers cannot be forked after that"),
        ("thread", "threads run: of-python"),
        ("native thread", "threads run: of-a-library"),
    ],
)
def test_what_does_not_survive_a_fork_is_refused_with_its_reason(
    obstacle: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OBSTACLE", obstacle)
    log = tmp_path / "server.log"
    server = WarmServer([OBSTACLES, "json"], environment=os.environ, log=log)
    try:
        for _ in range(2):  # one that waits for the server, and one that finds it gone
            process, why_cold = start(server.socket, "os:getpid")
            assert process.wait(60) == 0
            assert re.fullmatch(f"the fork server refused: {reason}", why_cold)
    finally:
        server.close()
    assert re.search(f"cannot be forked: {reason}", log.read_text())


def test_cuda_that_is_loaded_and_not_initialized_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OBSTACLE", "cuda loaded")
    server = WarmServer([OBSTACLES], environment=os.environ, log=tmp_path / "server.log")
    try:
        process, why_cold = start(server.socket, "os:getpid")
        assert (process.wait(60), why_cold) == (0, "")
    finally:
        server.close()


def test_a_fork_of_a_server_with_grpc_calls_a_grpc_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grpc_server: int) -> None:
    monkeypatch.setenv("OBSTACLE", "grpc")
    server = WarmServer([OBSTACLES], environment=os.environ, log=tmp_path / "server.log")
    try:
        for _ in range(2):
            process, why_cold = start(server.socket, f"{PROBES}:call_grpc", [str(grpc_server)])
            assert (process.wait(60), why_cold) == (0, "")
    finally:
        server.close()


def test_what_is_started_after_a_module_is_refused_while_the_rest_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tuneyard.warm.process import ask

    monkeypatch.setenv("OBSTACLE", "thread")
    monkeypatch.setenv("SLOW_MODULE", str(tmp_path / "go on"))
    server = WarmServer([OBSTACLES, "json", "tests.integration.warm.slow_module"], environment=os.environ, log=tmp_path / "server.log")
    try:
        with pytest.raises(OSError, match="the fork server refuses: threads run: of-python"):
            ask(server.socket, [sys.executable], target="os:getpid", after=OBSTACLES)
    finally:
        server.close()
