"""The job's handle of a gang: agents of ranks, placed by a TorchTrainer, that stay up from one start of the ranks to the next.

TorchTrainer places the agents, all or none, and tells when one is lost with its machine. The agents start, watch and end the ranks. The
retry after a failed rank, the next trial of a search, and the next train task of the same size are new orders to the same gang.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tuneyard.runtime.gang.mailbox import GangEnd, GangShape, Letters, Order, open_mailbox
from tuneyard.runtime.sessions.stacks import GANG_NEEDS
from tuneyard.training.request import TrainRequest
from tuneyard.warm import shim_command

_CLOSE_LIMIT_S = 10.0


class Gang:
    """A gang of `workers` agents. `server`: socket of the fork server on each machine, or None. `scratch`: folder for Ray Train's marker
    files.

    The constructor returns at once, while Ray starts the agents. The first order waits for them.
    """

    def __init__(self, workers: int, *, use_gpu: bool, server: Path | None, scratch: Path) -> None:
        self.workers, self.use_gpu = workers, use_gpu
        # The head of a cluster runs no ranks, and no fork server.
        executable = shim_command(server, after=GANG_NEEDS) if server is not None and server.exists() else ""
        variables = {name: value for name, value in os.environ.items() if name.startswith("RAY_TRAIN_")}
        self._mailbox = open_mailbox(executable=executable, variables=variables)
        self._number = 0
        self._remarked: set[str] = set()
        self._end: GangEnd | None = None
        self._run = self._mailbox.run.remote(GangShape(workers, use_gpu, str(server or ""), str(scratch)))

    @property
    def running(self) -> bool:
        """False once the agents have ended, or one was lost."""
        self._look(0.0)
        return self._end is None

    @property
    def end(self) -> GangEnd:
        """How the agents ended; all empty if they run or were closed."""
        return self._end or GangEnd()

    def order(self, request: TrainRequest, logs: Path) -> None:
        """Start the ranks of `request`. Ranks of the previous order that have not ended are killed."""
        import ray

        self._number += 1
        with contextlib.suppress(ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError):  # the gang has ended: `end` has the reason
            ray.get(self._mailbox.order.remote(Order(self._number, request, str(logs))))

    def ask_stop(self) -> None:
        self._mailbox.ask_stop.remote()

    def abandon(self) -> None:
        """Kill the ranks."""
        self._mailbox.abandon.remote()

    def read(self, wait_s: float) -> Letters:
        """New events and remarks, each remark once, and the ranks of the present order. Waits for `wait_s`, or until the agents end."""
        import ray

        self._look(wait_s)
        with contextlib.suppress(ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError):
            letters: Letters = ray.get(self._mailbox.drain.remote())
            new = [remark for remark in dict.fromkeys(letters.remarks) if remark not in self._remarked]
            self._remarked.update(new)
            return replace(letters, remarks=new)
        return Letters()

    def close(self) -> None:
        """End the agents and their ranks, even if a machine is gone, for which Ray would wait."""
        import ray

        placement = None
        if self.running:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.get(self._mailbox.close.remote(), timeout=_CLOSE_LIMIT_S)
            self._look(_CLOSE_LIMIT_S)
        if self.running:
            with contextlib.suppress(ray.exceptions.RayError):
                placement = ray.get(self._mailbox.placement.remote(), timeout=_CLOSE_LIMIT_S)
        with contextlib.suppress(Exception):  # Ray may be gone already
            # Even if the agents have ended: the mailbox's process would live as long as the handle, and a cluster's head has little memory.
            ray.kill(self._mailbox)
            if placement is not None:
                ray.util.remove_placement_group(placement)

    def _look(self, wait_s: float) -> None:
        """Set `_end` if the agents have ended, or end within `wait_s`."""
        import ray

        if self._end is not None:
            return
        try:
            self._end = ray.get(self._run, timeout=wait_s)
        except ray.exceptions.GetTimeoutError:
            return
        except ray.exceptions.RayActorError:
            self._end = GangEnd("the process that the gang's agents report to has died")
        except ray.exceptions.OutOfMemoryError:
            self._end = GangEnd("out of memory: the machine had less than 5 % of its memory left, and Ray ended processes of the gang")
        except ray.exceptions.RayError as error:
            self._end = GangEnd(str(error))


class Gangs:
    """Keeps one running gang of a job from task to task, while its size fits."""

    def __init__(self, server: Callable[[], Path | None], scratch: Path) -> None:
        self._server, self._scratch = server, scratch
        self._gang: Gang | None = None
        self._released = 0
        self._lock = threading.RLock()

    def another(self, name: str) -> Gangs:
        """A keeper of a further gang that runs beside this one. `name`: of its folder for files, unique in the job."""
        return Gangs(self._server, self._scratch / name)

    def of(self, workers: int, *, use_gpu: bool) -> Gang:
        """The gang of that size, or a new one."""
        with self._lock:
            gang = self._gang
            if gang is None or not gang.running or (gang.workers, gang.use_gpu) != (workers, use_gpu):
                self.release()
                gang = self._gang = Gang(workers, use_gpu=use_gpu, server=self._server(), scratch=self._scratch)
            return gang

    def prepare(self, workers: int, *, use_gpu: bool, after: Callable[[], object]) -> None:
        """Start a gang of that size in the background once `after` has returned, unless gangs are released meanwhile."""
        released = self._released

        def start() -> None:
            with contextlib.suppress(Exception):  # the task that needs the gang meets and reports the same error
                after()
                with self._lock:
                    if self._released == released:
                        self.of(workers, use_gpu=use_gpu)

        threading.Thread(target=start, name="tuneyard-gang", daemon=True).start()

    def release(self) -> None:
        """End the gang, and free its CPUs and GPUs."""
        with self._lock:
            self._released += 1
            gang, self._gang = self._gang, None
            if gang is not None:
                gang.close()
