"""A gang as the job sees it: agents on the machines of a TorchTrainer that stay up from one start of the ranks to the next.

TorchTrainer places the agents, all or none, and tells when one is lost with its machine. Starting, watching and ending ranks is theirs:
the retry after a failed rank, the next trial of a search and the next train task of the same size are new orders to the same gang.
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
    """`workers` agents. `server`: socket of the fork server on each machine, or None. `scratch`: for Ray Train's own marker files.

    The constructor returns at once, while Ray starts the agents; the first order waits for them.
    """

    def __init__(self, workers: int, *, use_gpu: bool, server: Path | None, scratch: Path) -> None:
        self.workers, self.use_gpu = workers, use_gpu
        # On the head of a cluster no ranks run, and no server.
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
        """How the agents have ended."""
        return self._end or GangEnd()

    def order(self, request: TrainRequest, logs: Path) -> None:
        """Start the ranks of `request`; those of the order before have ended or are killed."""
        import ray

        self._number += 1
        with contextlib.suppress(ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError):  # then the gang has ended, and says why
            ray.get(self._mailbox.order.remote(Order(self._number, request, str(logs))))

    def ask_stop(self) -> None:
        self._mailbox.ask_stop.remote()

    def abandon(self) -> None:
        """Kill the ranks."""
        self._mailbox.abandon.remote()

    def read(self, wait_s: float) -> Letters:
        """What has come in, after `wait_s` or when the agents end; each remark once."""
        import ray

        self._look(wait_s)
        with contextlib.suppress(ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError):
            letters: Letters = ray.get(self._mailbox.drain.remote())
            new = [remark for remark in dict.fromkeys(letters.remarks) if remark not in self._remarked]
            self._remarked.update(new)
            return replace(letters, remarks=new)
        return Letters()

    def close(self) -> None:
        """End the agents, and what they run; also where a machine is gone, for which Ray would wait."""
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
            # Also where the agents have ended: its process would stay as long as the handle, and the head of a cluster has little memory.
            ray.kill(self._mailbox)
            if placement is not None:
                ray.util.remove_placement_group(placement)

    def _look(self, wait_s: float) -> None:
        """Whether the agents have ended, or do so within `wait_s`."""
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
    """The one gang of a job that is up: kept from task to task while it has the size that is asked for."""

    def __init__(self, server: Callable[[], Path | None], scratch: Path) -> None:
        self._server, self._scratch = server, scratch
        self._gang: Gang | None = None
        self._released = 0
        self._lock = threading.RLock()

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
            with contextlib.suppress(Exception):  # the task that needs it meets the same, and tells
                after()
                with self._lock:
                    if self._released == released:
                        self.of(workers, use_gpu=use_gpu)

        threading.Thread(target=start, name="tuneyard-gang", daemon=True).start()

    def release(self) -> None:
        """End the gang: its CPUs and GPUs are wanted for something else."""
        with self._lock:
            self._released += 1
            gang, self._gang = self._gang, None
            if gang is not None:
                gang.close()
