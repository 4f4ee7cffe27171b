"""Runs Ray for the length of a job: embedded in this process, or a running cluster that it joins.

The embedded Ray listens on free ports only, keeps its files in a temporary folder of its own, shows no dashboard and prints nothing, so
that any number of jobs and other Ray clusters can run on one machine.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput, FailureKind, JobFailed
from tuneyard.api.errors import said_by
from tuneyard.runtime.environment import environment, set_variables
from tuneyard.runtime.setup_commands import run_once
from tuneyard.warm import temporary_folder

_SIGACTION_BYTES = 256
"""Larger than the C library's struct on every platform."""
_START_TRIES = 6
"""Ray's node has 30 s to start, which a busy machine may exceed."""
_CONNECT_TIMEOUT_S = 5.0
_OBJECT_STORE_BYTES = 256 * 1024**2
"""Small, because Tuneyard moves data by files and storage: the object store holds only requests and events."""
_UNUSED_STARTS = ("start_monitor", "start_log_monitor", "start_api_server")
_RAY_SETTINGS = {
    "RAY_TRAIN_V2_ENABLED": "1",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "600",
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    # The watcher is a process per attempt, which waits for a cloud provider to announce the end of a node.
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    # The first workers of a job come from its fork server, not from Ray's pool.
    "RAY_prestart_worker_first_driver": "0",
    # On a busy machine, a worker may wait long for its fork server.
    "RAY_worker_register_timeout_seconds": "180",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


@dataclass(frozen=True)
class RaySession:
    """The resources of the job. `embedded`: all of Ray's processes run on this machine, and end with the job."""

    embedded: bool
    cpus: float
    gpus: float


@contextmanager
def ray_session(
    *,
    address: str | None,
    cpus: int,
    gpus: int,
    values: Mapping[str, str],
    setup: Sequence[str],
    secrets: Sequence[str],
    run: str,
) -> Iterator[RaySession]:
    """Start an embedded Ray with `cpus` and `gpus`, or join the cluster at `address`. Ray is shut down, or left, in every case.

    On a joined cluster, every worker process gets the environment `values`, and each node runs `setup` once, before the job's first task
    there. `run`: a name that no other run has. Embedded workers inherit both from this process. Output to stdout is dropped meanwhile.

    Raises BadInput if nothing answers at `address`, JobFailed if Ray does not start.
    """
    import ray

    # Ray prints the death of every process to the driver's stdout. Tuneyard reports deaths itself, and stdout is for results.
    with environment(_RAY_SETTINGS), Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        if address is None:
            # A short path: Ray puts Unix sockets below it, whose paths have at most 107 characters.
            with temporary_folder("ty-ray-", Path("/tmp")) as folder:
                with _own_signals():
                    _start(cpus, gpus, folder)
                try:
                    yield RaySession(embedded=True, cpus=cpus, gpus=gpus)
                finally:
                    ray.shutdown()
            return
        with _own_signals():
            _join(address, _node_preparation(dict(values), list(setup), list(secrets), run) if values or setup else None)
        try:
            total = ray.cluster_resources()
            yield RaySession(embedded=False, cpus=total.get("CPU", 0), gpus=total.get("GPU", 0))
        finally:
            ray.shutdown()


def _start(cpus: int, gpus: int, folder: Path) -> None:
    import ray

    for attempt in range(1, _START_TRIES + 1):
        try:
            with _own_processes():
                ray.init(
                    address="local",
                    num_cpus=cpus,
                    num_gpus=gpus,
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level="critical",
                    object_store_memory=_OBJECT_STORE_BYTES,
                    _temp_dir=str(folder),
                )
            return
        # Ray raises a bare Exception if its node does not start in time.
        except Exception as error:
            ray.shutdown()
            _end_processes_of(folder)
            if attempt == _START_TRIES or "timed out" not in str(error):
                raise JobFailed(
                    f"Ray could not start on this machine: {said_by(error)}",
                    "look for a busy machine, a full disk, little memory, or few processes (ulimit -a); or join a cluster: --ray ADDRESS",
                    kind=FailureKind.INTERNAL,
                ) from error


def _end_processes_of(folder: Path) -> None:
    """Kill what a failed start has left: Ray forgets the servers of a node that did not come up, and they would take the processor from the
    next try. All of them name the session's folder."""
    import psutil

    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if any(str(folder) in word for word in process.cmdline()):
                process.kill()


@contextmanager
def _own_processes() -> Iterator[None]:
    """Start the processes of Ray that one job on one machine needs, in a process group of their own. `ray.init` has no options for either.

    The autoscaler's monitor, the log monitor, the API server and the dashboard's agent import for seconds before a job's first step.

    A signal for the process group of the command (`timeout`, a terminal that is closed, a batch system) is for the command alone: it stops
    the job, and needs Ray for that. Ray's processes end with the command even if it is killed (PR_SET_PDEATHSIG).
    """
    from ray._private import ray_constants, services, utils
    from ray._private.node import Node

    build = services._build_python_executable_command_memory_profileable

    def command(component: str, *arguments: Any, **options: Any) -> list[str]:
        if component == ray_constants.PROCESS_TYPE_DASHBOARD_AGENT:
            return [sys.executable, "-S", "-E", str(Path(__file__).with_name("agent_stand_in.py"))]
        words: list[str] = build(component, *arguments, **options)
        return words

    with ExitStack() as patches:
        for name in _UNUSED_STARTS:
            patches.enter_context(_replaced(Node, name, lambda *_arguments, **_options: None))
        patches.enter_context(_replaced(services, build.__name__, command))
        patches.enter_context(_replaced(services, "ConsolePopen", partial(services.ConsolePopen, start_new_session=True)))
        # Ray imports the dashboard's libraries to see whether its agent can use them.
        patches.enter_context(_replaced(utils, "get_dashboard_dependency_error", lambda: None))
        yield


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    kept = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, kept)


def _join(address: str, prepare: Callable[[], None] | None) -> None:
    import ray

    if address.startswith("ray://"):
        raise BadInput(
            f"{address} is a Ray Client address, but Ray Train does not run through Ray Client",
            "give the cluster's own address, such as --ray HOST:6379, on a machine of the cluster; or --ray auto",
        )
    if address != "auto":
        _check_listening(address)
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level="critical",
            **({"runtime_env": {"worker_process_setup_hook": prepare}} if prepare is not None else {}),
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        ray.shutdown()
        if _asks_for_token(error):
            raise BadInput(
                f"the Ray cluster at {address} asks for its token",
                "set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH to the cluster's token",
            ) from error
        raise _no_cluster(address, said_by(error)) from error


def _asks_for_token(error: BaseException | None) -> bool:
    """Whether Ray misses a valid token. Only the chained errors behind an error tell it."""
    while error is not None:
        if "InvalidAuthToken" in str(error) or type(error).__name__ == "AuthenticationError":
            return True
        error = error.__cause__ or error.__context__
    return False


def _check_listening(address: str) -> None:
    """Raises BadInput if nothing listens at `address`, or if it does not speak gRPC. Ray itself would retry for minutes."""
    import grpc

    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise BadInput(f"--ray {address} is not an address", "write it as HOST:PORT, such as 10.0.0.4:6379, or auto")
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise BadInput(
            f"nothing answers at the Ray address {address}: {error.strerror or error}",
            "start a cluster there (ray start --head --port PORT), correct the address, or leave out --ray to run on this machine",
        ) from error
    with grpc.insecure_channel(address) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=_CONNECT_TIMEOUT_S)
        except grpc.FutureTimeoutError as error:
            raise _no_cluster(address, "it does not speak Ray's protocol") from error


def _no_cluster(address: str, why: str) -> BadInput:
    return BadInput(
        f"no Ray cluster of this version answers at {address}: {why}",
        "another program may hold that port: check it with `ray status --address ADDRESS`; or leave out --ray to run on this machine",
    )


def _node_preparation(values: dict[str, str], setup: list[str], secrets: list[str], run: str) -> Callable[[], None]:
    """A function that every worker process of a joined cluster calls first. Ray keeps it in memory: it reaches no disk and no log."""

    def prepare() -> None:
        os.environ.update(values)
        set_variables(run_once(setup, secrets=secrets, run=run))

    return prepare


@contextmanager
def _own_signals() -> Iterator[None]:
    """Restore the handler of SIGTERM, in any thread. `ray.init` installs a native handler that prints a stack trace, and ends the process
    three seconds later."""
    libc, kept = ctypes.CDLL(None), ctypes.create_string_buffer(_SIGACTION_BYTES)
    handler = signal.getsignal(signal.SIGTERM)
    libc.sigaction(signal.SIGTERM, None, kept)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
        libc.sigaction(signal.SIGTERM, kept, None)
