"""Train tasks on Ray: an attempt is a TorchTrainer with one worker per rank; what follows a failed one is the JobSpec's to say."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tuneyard.api import FailureKind, JobFailed, Retries, TuneyardError
from tuneyard.api.attempt_report import RankPlace
from tuneyard.runtime.environment import hide
from tuneyard.runtime.failures import Evidence, Lost, answer_to, could_not_start, explain, first_to_fail, is_collateral, shrunk
from tuneyard.runtime.log_shipper import tail_of
from tuneyard.runtime.mailbox import Letters, RankProcess, died, open_mailbox
from tuneyard.runtime.nodes import Nodes
from tuneyard.runtime.oom import oom_kills
from tuneyard.runtime.rank import train_rank
from tuneyard.tracking import Emit, Placed, Warned
from tuneyard.training.request import TrainRequest, TrainResult

ShouldStop = Callable[[], bool]

_POLL_S = 0.2
STOP_GRACE_S = 600.0
"""A step, and the checkpoint after it, may take so long after a stop was asked for."""
_SHOWN_LINES = 12
_SETTLE_S = 15.0
_LOST_GRACE_S = 10.0
"""A rank is gone, and Ray has not noticed: after so long the attempt ends without it."""
_BEGIN_LIMIT_S = 600.0
_TAIL_LIMIT_S = 20.0


@dataclass(frozen=True, kw_only=True)
class TrainSetting:
    """What the attempts of a task share. `logs` is a folder that the machines of the ranks have (or make) for themselves.

    `nodes`: the machines of a cluster that a hub has made for this attempt. It starts attempts itself, so that only a shortage of
    memory is answered here. `logs_uri`: where that cluster's logs are copied.
    """

    use_gpu: bool
    retries: Retries
    logs: Path
    nodes: Nodes | None = None
    logs_uri: str = ""
    source: str = "rank"
    """What logs of ranks are called there, before the number of the rank."""
    stop_grace_s: float = STOP_GRACE_S
    secrets: Sequence[str] = ()
    on_attempt: Callable[[TrainRequest], None] = lambda _request: None
    on_failure: Callable[[TrainRequest, TuneyardError], None] = lambda _request, _error: None


def run_train(request: TrainRequest, setting: TrainSetting, emit: Emit, should_stop: ShouldStop) -> TrainResult:
    """Train until it succeeds, is asked to stop, or `retries` forbids another attempt.

    Every attempt starts from the newest committed checkpoint. Raises the last attempt's error.
    """
    first = request.attempt
    while True:
        setting.on_attempt(request)
        try:
            return _Attempt(request, setting, emit, should_stop).run()
        except TuneyardError as error:
            setting.on_failure(request, error)
            following = _next_attempt(request, error, setting, starts=request.attempt - first + 1)
            if following is None or should_stop():
                raise
            emit(Warned(task=request.name, message=_announcement(error, following, first, setting.retries)))
            request = following


def _next_attempt(request: TrainRequest, error: TuneyardError, setting: TrainSetting, *, starts: int) -> TrainRequest | None:
    answer = answer_to(error.kind, setting.retries, starts)
    if answer == "stop" or (answer == "retry" and setting.nodes is not None):
        return None
    plan = shrunk(request.plan) if answer == "shrink" else request.plan
    return None if plan is None else replace(request, plan=plan, attempt=request.attempt + 1, resume=True)


def _announcement(error: TuneyardError, following: TrainRequest, first: int, retries: Retries) -> str:
    smaller = f" with micro-batch {following.plan.micro_batch}" if error.kind is FailureKind.OUT_OF_MEMORY else ""
    cause = error.cause.splitlines()[0].rstrip(":;")
    return f"{cause}; starting attempt {following.attempt - first + 1} of {retries.max + 1}{smaller} from the last committed checkpoint"


@dataclass
class _Attempt:
    """One start of all ranks."""

    request: TrainRequest
    setting: TrainSetting
    emit: Emit
    should_stop: ShouldStop
    _lost: list[Lost] = field(default_factory=list)
    _lost_since: float = 0.0
    _seen: dict[int, RankProcess] = field(default_factory=dict)
    _places: dict[int, RankProcess] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)

    def run(self) -> TrainResult:
        import ray

        self._kills_before = self._oom_kills()
        self._mailbox = open_mailbox()
        fit = _Background(self._fit)
        stop_deadline: float | None = None
        try:
            while fit.running:
                fit.join(_POLL_S)
                self._read()
                self._check_cluster()
                if stop_deadline is None and self.should_stop():
                    self._mailbox.ask_stop.remote()
                    stop_deadline = time.monotonic() + self.setting.stop_grace_s
                if stop_deadline is not None and time.monotonic() > stop_deadline:
                    raise JobFailed(
                        f"task {self.request.name} did not stop within {self.setting.stop_grace_s:g} s; its processes were ended",
                        "go on with --resume from the last committed checkpoint",
                        kind=FailureKind.INTERNAL,
                    )
            self._read()
            if fit.error is not None and self.setting.nodes is not None:
                # Ray tells first of the ranks that lost a peer; which peer is gone shows a moment later.
                self.setting.nodes.settle(_SETTLE_S)
                self._read()
        finally:
            ray.kill(self._mailbox)
        if fit.error is not None:
            raise self._explain(fit.error) from fit.error
        result: TrainResult | None = fit.value
        if result is None:
            raise explain(self._evidence({}, []))
        return result

    def _check_cluster(self) -> None:
        """Raises JobFailed where ranks are gone, or never came, and Ray would wait on."""
        if self.setting.nodes is None:
            return
        if self._lost and time.monotonic() - self._lost_since > _LOST_GRACE_S:
            raise explain(self._evidence({}, []))
        begun = len(self._places)
        if begun < self.request.plan.workers and time.monotonic() - self._began > _BEGIN_LIMIT_S:
            raise JobFailed(
                f"{begun} of {self.request.plan.workers} ranks began within {_BEGIN_LIMIT_S:g} s: they do not reach each other,"
                " or have no room",
                "check the network between the nodes, and the interface that the Cluster object names",
                kind=FailureKind.NETWORK,
            )

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
        nodes = self.setting.nodes
        seen = list(self._seen.values())
        gone = {rank.rank for rank in (nodes.gone(seen) if nodes is not None else died(seen))}
        try:
            letters: Letters = ray.get(self._mailbox.drain.remote())
        except ray.exceptions.RayActorError:
            return
        self._welcome(letters.begun)
        for event in letters.events:
            self.emit(event)
        self._seen = {rank.rank: rank for rank in letters.running}
        if all(is_collateral(error) for error in letters.errors):
            # Otherwise Ray has ended the others because one of them raised something of its own.
            known = {lost.rank for lost in self._lost}
            new = [rank for rank in letters.running if rank.rank in gone - known]
            if new and not self._lost:
                self._lost_since = time.monotonic()
            self._lost += [self._lost_rank(rank.rank) for rank in new]

    def _welcome(self, begun: list[RankProcess]) -> None:
        """Follow ranks that are new; say where all of them are, once all have begun."""
        if len(self._places) == len(begun):
            return
        self._places = {rank.rank: rank for rank in begun}
        for rank in begun:
            if self.setting.nodes is not None:
                self.setting.nodes.follow(rank, f"{self.setting.source}-{rank.rank}")
        if len(begun) == self.request.plan.workers:
            places = [RankPlace(rank=rank.rank, pod=rank.pod.name, node=rank.pod.node) for rank in begun]
            self.emit(Placed(task=self.request.name, ranks=tuple(places)))

    def _explain(self, error: BaseException) -> TuneyardError:
        from ray.exceptions import RayActorError
        from ray.train import ControllerError, WorkerGroupError

        if isinstance(error, ControllerError) and not self._lost:
            return could_not_start(self.request.name, _last_line(error))
        failures: dict[int, BaseException] = dict(error.worker_failures) if isinstance(error, WorkerGroupError) else {0: error}
        told = [failure for _, failure in sorted(failures.items()) if isinstance(failure, TuneyardError)]
        dead = [rank for rank, failure in failures.items() if isinstance(failure, RayActorError) or "ActorDiedError" in str(failure)]
        known = {lost.rank for lost in self._lost}
        self._lost += [self._lost_rank(rank) for rank in dead if rank not in known]
        # Ray names those that died by themselves; of what was seen to go at the same moment it may have ended the rest.
        self._lost.sort(key=lambda lost: lost.rank not in dead)
        raised = {rank: f"{type(failure).__name__}: {failure}" for rank, failure in failures.items()}
        return explain(self._evidence(raised, told))

    def _lost_rank(self, rank: int) -> Lost:
        seen = self._places.get(rank)
        if seen is None:
            return Lost(rank)
        nodes = self.setting.nodes
        where = seen.host if nodes is None else str(seen.pod)
        return Lost(rank, seen.pid, where, seen.pod.node, nodes.why_lost(seen) if nodes is not None else "")

    def _evidence(self, raised: dict[int, str], told: list[TuneyardError]) -> Evidence:
        # A process was seen to go first, perhaps, and the rest of its machine after it.
        self._lost = sorted((self._lost_rank(lost.rank) for lost in self._lost), key=lambda lost: not lost.machine_lost)
        rank = first_to_fail(self._lost, raised) or 0
        nodes = self.setting.nodes
        if nodes is None:
            path = self.setting.logs / f"{self.request.name}-rank-{rank}.log"
            log, tail = str(path), hide(_tail_of(self._places.get(rank), path), self.setting.secrets)
        else:
            source = f"{self.setting.source}-{rank}"
            log, tail = f"{self.setting.logs_uri}/{source}", nodes.tail(source, _SHOWN_LINES)
        kills = self._oom_kills() - self._kills_before
        return Evidence(lost=self._lost, raised=raised, told=told, oom_kills=kills, log=log, log_tail=tail, hub=nodes is not None)

    def _oom_kills(self) -> int:
        return oom_kills() if self.setting.nodes is None else self.setting.nodes.oom_kills()


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


def _tail_of(process: RankProcess | None, log: Path) -> str:
    """The last lines of a rank's log, from the machine that it ran on; empty where that does not answer."""
    if process is None or process.host == socket.gethostname():
        return tail_of(log, _SHOWN_LINES)
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(process.ray_node, soft=False)
    try:
        return str(ray.get(ray.remote(num_cpus=0, scheduling_strategy=there)(tail_of).remote(log, _SHOWN_LINES), timeout=_TAIL_LIMIT_S))
    except ray.exceptions.RayError:
        return ""


def _last_line(error: BaseException) -> str:
    return ([line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__])[-1]
