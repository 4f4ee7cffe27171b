"""Starts Ray for a local run: an embedded one in the background, when a task needs it; or joins a cluster at once, to learn its devices."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack

from tuneyard.admission import Machine
from tuneyard.api import JobSpec, Task
from tuneyard.runtime.placing import machine_of_cluster, this_machine
from tuneyard.runtime.sessions.session import ray_session


class RayStart(AbstractContextManager["RayStart"]):
    """A context for the length of a job. `address`: a running cluster to join, or None. `values`: the job's environment.

    Raises BadInput if nothing answers at `address`.
    """

    def __init__(self, job: JobSpec, address: str | None, *, values: Mapping[str, str], secrets: Sequence[str]) -> None:
        self._job, self._address, self._values, self._secrets = job, address, values, secrets
        self._stack = ExitStack()
        self._starting: _Starting | None = None
        self.embedded = address is None
        """Whether ranks and engines run on this machine alone."""
        self.run = uuid.uuid4().hex
        self.machine = Machine("cpu", 1)
        """The devices of the job, known once the context is entered."""

    def __enter__(self) -> RayStart:
        if self._address is None:
            self.machine = this_machine()
            return self
        try:
            self.use()
            self.machine = machine_of_cluster()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def begin(self) -> None:
        """Start Ray in the background; `use` waits for it."""
        if self._starting is None:
            self._starting = _Starting(self._session())
            self._stack.callback(self._starting.close)

    def use(self) -> None:
        """Wait until Ray runs. Raises the error of its start."""
        self.begin()
        assert self._starting is not None
        self._starting.wait()

    def _session(self) -> AbstractContextManager[object]:
        return ray_session(
            address=self._address,
            cpus=max(os.cpu_count() or 1, *(processes(task) for task in self._job.spec.tasks)),
            gpus=self.machine.devices if self.machine.has_gpus else 0,
            values=self._values,
            setup=self._job.spec.setup,
            secrets=self._secrets,
            run=self.run,
        )


class _Starting:
    """Enters a context in a thread at once, and leaves it at `close`. The thread must live in between: the kernel ends Ray's processes
    together with the thread that has started them (PR_SET_PDEATHSIG)."""

    def __init__(self, context: AbstractContextManager[object]) -> None:
        self._context = context
        self._settled, self._done = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._hold, name="ray-session", daemon=True)
        self._thread.start()

    def _hold(self) -> None:
        try:
            with self._context:
                self._settled.set()
                self._done.wait()
        except BaseException as error:  # noqa: BLE001 - kept for `wait`, which raises it
            self._error = error
        finally:
            self._settled.set()

    def wait(self) -> None:
        """Wait until the context is entered. Raises the error of entering it."""
        self._settled.wait()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Leave the context, if it was entered."""
        self._done.set()
        self._thread.join()


def processes(task: Task) -> int:
    """Number of a task's processes that Ray must have room for; 0 if the machine decides it."""
    if task.training is not None and isinstance(task.resources.workers, int):
        return task.resources.workers
    return task.resources.instances if task.score is not None else 0
