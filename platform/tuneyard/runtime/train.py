"""Train tasks on Ray: an attempt is a TorchTrainer with one worker per rank; what follows a failed one is the JobSpec's to say."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tuneyard.api import FailureKind, JobFailed, Retries, TuneyardError
from tuneyard.runtime.environment import hide
from tuneyard.runtime.failures import Evidence, Lost, answer_to, explain, is_collateral, shrunk
from tuneyard.runtime.mailbox import Letters, RankProcess, died, open_mailbox
from tuneyard.runtime.oom import oom_kills
from tuneyard.runtime.rank import train_rank
from tuneyard.tracking import Emit, Warned
from tuneyard.training.request import TrainRequest, TrainResult

ShouldStop = Callable[[], bool]

_POLL_S = 0.2
_STOP_GRACE_S = 600.0
"""A step, and the checkpoint after it, may take so long after a stop was asked for."""
_SHOWN_LINES = 12


@dataclass(frozen=True, kw_only=True)
class TrainSetting:
    """What the attempts of a task share. `logs` is a folder that the machines of the ranks have (or make) for themselves."""

    use_gpu: bool
    retries: Retries
    logs: Path
    secrets: Sequence[str] = ()
    on_attempt: Callable[[TrainRequest], None] = lambda _request: None
    on_failure: Callable[[TrainRequest, TuneyardError], None] = lambda _request, _error: None


def run_train(request: TrainRequest, setting: TrainSetting, emit: Emit, should_stop: ShouldStop) -> TrainResult:
    """Train until it succeeds, is asked to stop, or `retries` forbids another attempt.

    Every attempt starts from the newest committed checkpoint. Raises the last attempt's error.
    """
    while True:
        setting.on_attempt(request)
        try:
            return _Attempt(request, setting, emit, should_stop).run()
        except TuneyardError as error:
            setting.on_failure(request, error)
            following = _next_attempt(request, error, setting.retries)
            if following is None or should_stop():
                raise
            emit(Warned(task=request.name, message=_announcement(error, following, setting.retries)))
            request = following


def _next_attempt(request: TrainRequest, error: TuneyardError, retries: Retries) -> TrainRequest | None:
    answer = answer_to(error.kind, retries, request.attempt)
    if answer == "stop":
        return None
    plan = shrunk(request.plan) if answer == "shrink" else request.plan
    return None if plan is None else replace(request, plan=plan, attempt=request.attempt + 1, resume=True)


def _announcement(error: TuneyardError, following: TrainRequest, retries: Retries) -> str:
    smaller = f" with micro-batch {following.plan.micro_batch}" if error.kind is FailureKind.OUT_OF_MEMORY else ""
    cause = error.cause.splitlines()[0].rstrip(":;")
    return f"{cause}; starting attempt {following.attempt} of {retries.max + 1}{smaller} from the last committed checkpoint"


@dataclass
class _Attempt:
    """One start of all ranks."""

    request: TrainRequest
    setting: TrainSetting
    emit: Emit
    should_stop: ShouldStop
    _lost: list[Lost] = field(default_factory=list)
    _seen: dict[int, RankProcess] = field(default_factory=dict)

    def run(self) -> TrainResult:
        import ray

        kills_before = oom_kills()
        self._mailbox = open_mailbox()
        fit = _Background(self._fit)
        stop_deadline: float | None = None
        try:
            while fit.running:
                fit.join(_POLL_S)
                self._read()
                if stop_deadline is None and self.should_stop():
                    self._mailbox.ask_stop.remote()
                    stop_deadline = time.monotonic() + _STOP_GRACE_S
                if stop_deadline is not None and time.monotonic() > stop_deadline:
                    raise JobFailed(
                        f"task {self.request.name} did not stop within {_STOP_GRACE_S:g} s; its processes were ended",
                        "go on with --resume from the last committed checkpoint",
                        kind=FailureKind.INTERNAL,
                    )
            self._read()
        finally:
            ray.kill(self._mailbox)
        if fit.error is not None:
            raise self._explain(fit.error, oom_kills() - kills_before) from fit.error
        result: TrainResult | None = fit.value
        if result is None:
            raise explain(self._evidence({}, [], 0))
        return result

    def _fit(self) -> Any:
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchTrainer

        request = self.request
        trainer = TorchTrainer(
            train_rank,
            train_loop_config={"request": request, "mailbox": self._mailbox, "logs": str(self.setting.logs)},
            scaling_config=ScalingConfig(
                num_workers=request.plan.workers,
                use_gpu=self.setting.use_gpu,
                resources_per_worker={"CPU": 1, **({"GPU": 1} if self.setting.use_gpu else {})},
            ),
            # Checkpoints are Tuneyard's own, and so are retries: Ray keeps nothing here but a marker file.
            run_config=RunConfig(
                name=f"{request.name}-{request.attempt}",
                storage_path=str(Path(request.scratch) / "ray-train"),
                failure_config=FailureConfig(max_failures=0, controller_failure_limit=0),
            ),
        )
        return trainer.fit().return_value

    def _read(self) -> None:
        """Hand events on, and notice ranks whose process ended before they said so."""
        import ray

        # The ranks must be looked at before the mailbox is asked: one that ends in between has said goodbye by then.
        gone = {rank.rank for rank in died(list(self._seen.values()))}
        try:
            letters: Letters = ray.get(self._mailbox.drain.remote())
        except ray.exceptions.RayActorError:
            return
        for event in letters.events:
            self.emit(event)
        self._seen = {rank.rank: rank for rank in letters.running}
        if all(is_collateral(error) for error in letters.errors):
            # Otherwise Ray has ended the others because one of them raised something of its own.
            known = {lost.rank for lost in self._lost}
            self._lost += [Lost(r.rank, r.pid, r.host) for r in letters.running if r.rank in gone - known]

    def _explain(self, error: BaseException, kills: int) -> TuneyardError:
        from ray.exceptions import RayActorError
        from ray.train import ControllerError, WorkerGroupError

        if isinstance(error, ControllerError):
            return JobFailed(
                f"the ranks of task {self.request.name} could not start: {_last_line(error)}",
                "ask for fewer workers in resources.workers, or free CPUs and GPUs of the Ray cluster",
                kind=FailureKind.INTERNAL,
            )
        failures: dict[int, BaseException] = dict(error.worker_failures) if isinstance(error, WorkerGroupError) else {0: error}
        told = [failure for _, failure in sorted(failures.items()) if isinstance(failure, TuneyardError)]
        dead = [rank for rank, failure in failures.items() if isinstance(failure, RayActorError) or "ActorDiedError" in str(failure)]
        known = {lost.rank for lost in self._lost}
        self._lost += [self._lost_rank(rank) for rank in dead if rank not in known]
        # Ray names those that died by themselves; of what was seen to go at the same moment it may have ended the rest.
        self._lost.sort(key=lambda lost: lost.rank not in dead)
        raised = {rank: f"{type(failure).__name__}: {failure}" for rank, failure in failures.items()}
        return explain(self._evidence(raised, told, kills))

    def _lost_rank(self, rank: int) -> Lost:
        seen = self._seen.get(rank)
        return Lost(rank, seen.pid, seen.host) if seen else Lost(rank)

    def _evidence(self, raised: dict[int, str], told: list[TuneyardError], kills: int) -> Evidence:
        rank = self._lost[0].rank if self._lost else min(raised, default=0)
        log = self.setting.logs / f"{self.request.name}-rank-{rank}.log"
        return Evidence(
            lost=self._lost, raised=raised, told=told, oom_kills=kills, log=str(log), log_tail=hide(_tail(log), self.setting.secrets)
        )


class _Background:
    """A function in a thread: Ray's `fit` blocks, and takes over Ctrl-C where it runs in the main thread."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self._function = function
        self._thread = threading.Thread(target=self._run, name="ray-train", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.value = self._function()
        except BaseException as error:  # noqa: BLE001 - kept, and raised by whoever waits for this thread
            self.error = error

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)


def _tail(log: Path) -> str:
    if not log.exists():
        return ""
    with log.open(errors="replace") as file:
        return "\n".join(
            f"  {line}"
            for line in deque((line.rstrip() for line in file if line.strip() and not line.startswith("---")), maxlen=_SHOWN_LINES)
        )


def _last_line(error: BaseException) -> str:
    return ([line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__])[-1]
