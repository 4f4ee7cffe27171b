"""Ray for the length of a job: one embedded in this process, or a running cluster that is joined.

The embedded one listens on free ports only, keeps its files in a temporary folder of its own, shows no dashboard and prints
nothing, so that any number of jobs and other Ray clusters can live on one machine.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path

from tuneyard.api import BadInput, FailureKind, JobFailed
from tuneyard.runtime.environment import environment, run_setup
from tuneyard.warm import temporary_folder

_SIGACTION_BYTES = 256
"""More than the C library's struct has anywhere."""
_START_TRIES = 6
"""Ray gives its node 30 s to come up, which a machine under load can miss."""
_CONNECT_TIMEOUT_S = 5.0
_OBJECT_STORE_BYTES = 256 * 1024**2
"""Tuneyard moves data by files and storage; the object store holds requests and events."""
_UNUSED_STARTS = ("start_monitor", "start_log_monitor", "start_api_server")
_RAY_SETTINGS = {
    "RAY_TRAIN_V2_ENABLED": "1",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "600",
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    # A process of its own per attempt, which waits for a cloud provider to announce the end of a node.
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    # The first workers of a job come from its fork server, not from Ray's pool.
    "RAY_prestart_worker_first_driver": "0",
    # A worker that waits for its fork server on a busy machine.
    "RAY_worker_register_timeout_seconds": "180",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


@dataclass(frozen=True)
class RaySession:
    """What the job may use. `embedded`: all of Ray's processes run on this machine and end with the job."""

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
    job: str,
) -> Iterator[RaySession]:
    """Start an embedded Ray with `cpus` and `gpus`, or join the cluster at `address`; leave it whatever happens.

    On a joined cluster every worker process gets the environment `values`, and each node runs `setup` once, before the job's
    first task there; embedded workers inherit both from this process. What is printed to stdout meanwhile is dropped.

    Raises BadInput where nothing answers at `address`, JobFailed where Ray does not start.
    """
    import ray

    # Ray tells the driver's stdout about every process that dies. Tuneyard says so itself, and stdout is for results.
    with environment(_RAY_SETTINGS), Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        if address is None:
            # Short: Ray puts Unix sockets below it, whose paths end at 107 characters.
            with temporary_folder("ty-ray-", Path("/tmp")) as folder:
                with _own_signals():
                    _start(cpus, gpus, folder)
                try:
                    yield RaySession(embedded=True, cpus=cpus, gpus=gpus)
                finally:
                    ray.shutdown()
            return
        with _own_signals():
            _join(address, _node_preparation(dict(values), list(setup), list(secrets), job) if values or setup else None)
        try:
            total = ray.cluster_resources()
            yield RaySession(embedded=False, cpus=total.get("CPU", 0), gpus=total.get("GPU", 0))
        finally:
            ray.shutdown()


def _start(cpus: int, gpus: int, folder: Path) -> None:
    import ray

    for attempt in range(1, _START_TRIES + 1):
        try:
            with _fewer_processes():
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
        # Ray raises a bare Exception where its node does not come up in time.
        except Exception as error:
            ray.shutdown()
            _end_processes_of(folder)
            if attempt == _START_TRIES or "timed out" not in str(error):
                raise JobFailed(
                    f"Ray could not start on this machine: {_first_line(error)}",
                    "look for a full disk, too little memory, or limits on processes (ulimit -a); or join a cluster: --ray ADDRESS",
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
def _fewer_processes() -> Iterator[None]:
    """Without the autoscaler's monitor, the log monitor and the API server, which a cluster of one job on one machine has no use for: a
    tenth of the CPU time to a job's first step. `ray.init` has no options for them."""
    from ray._private.node import Node

    kept = {name: getattr(Node, name) for name in _UNUSED_STARTS}
    for name in kept:
        setattr(Node, name, lambda *_arguments, **_options: None)
    try:
        yield
    finally:
        for name, start in kept.items():
            setattr(Node, name, start)


def _join(address: str, prepare: Callable[[], None] | None) -> None:
    import ray

    if address.startswith("ray://"):
        raise BadInput(
            f"{address} is a Ray Client address, and Ray Train does not run through it",
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
        raise _no_cluster(address, _first_line(error)) from error


def _asks_for_token(error: BaseException | None) -> bool:
    """Ray tells of a missing or wrong token in the text of an error behind the error."""
    while error is not None:
        if "InvalidAuthToken" in str(error) or type(error).__name__ == "AuthenticationError":
            return True
        error = error.__cause__ or error.__context__
    return False


def _check_listening(address: str) -> None:
    """Raises BadInput where nothing listens, or something that does not speak Ray's protocol: Ray itself would try for minutes."""
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


def _node_preparation(values: dict[str, str], setup: list[str], secrets: list[str], job: str) -> Callable[[], None]:
    """What every worker process of a joined cluster does first. Sent through Ray's own memory: never on a disk, never in a log."""

    def prepare() -> None:
        import fcntl

        os.environ.update(values)
        if not setup:
            return
        folder = Path(tempfile.gettempdir()) / f"tuneyard-setup-{job}"
        folder.mkdir(exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "done").exists():
                run_setup(setup, log=folder / "setup.log", secrets=secrets)
                (folder / "done").touch()

    return prepare


@contextmanager
def _own_signals() -> Iterator[None]:
    """Put the handler of SIGTERM back, in any thread: ray.init takes it below Python too, prints a stack trace there, and ends the process
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


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
