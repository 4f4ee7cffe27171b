"""Ray of a local run: an embedded one starts in the background when a task needs it; a cluster is joined at once, to see what it has."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack

from tuneyard.admission import Machine
from tuneyard.api import JobSpec, Task
from tuneyard.runtime.placing import machine_of_cluster, this_machine
from tuneyard.runtime.sessions.session import ray_session


class RayStart(AbstractContextManager["RayStart"]):
    """Enter it for the length of a job. `address`: a running cluster to join, or None. `values`: the job's environment.

    Raises BadInput where nothing answers at `address`.
    """

    def __init__(self, job: JobSpec, address: str | None, *, values: Mapping[str, str], secrets: Sequence[str]) -> None:
        self._job, self._address, self._values, self._secrets = job, address, values, secrets
        self._stack = ExitStack()
        self._starting: _Starting | None = None
        self.embedded = address is None
        """Whether ranks and engines run on this machine alone."""
        self.machine = Machine("cpu", 1)
        """What the job may use, once it was entered."""

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
        """Start Ray meanwhile; `use` waits for it."""
        if self._starting is None:
            self._starting = _Starting(self._session())
            self._stack.callback(self._starting.close)

    def use(self) -> None:
        """Raises what made Ray fail to start."""
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
            job=self._job.metadata.name,
        )


class _Starting:
    """A context that a thread enters at once, and leaves at `close`. The thread lives as long: the kernel ends Ray's processes together
    with the thread that has started them (PR_SET_PDEATHSIG)."""

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
        except BaseException as error:  # noqa: BLE001 - kept, and raised by whoever waits for this thread
            self._error = error
        finally:
            self._settled.set()

    def wait(self) -> None:
        """Until the context is entered. Raises what entering raised."""
        self._settled.wait()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Leave the context, if it was entered."""
        self._done.set()
        self._thread.join()


def processes(task: Task) -> int:
    """How many processes of a task Ray must have room for, where that does not follow from the machine."""
    if task.training is not None and isinstance(task.resources.workers, int):
        return task.resources.workers
    return task.resources.instances if task.score is not None else 0
