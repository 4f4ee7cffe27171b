"""Train tasks on Ray: an attempt is one start of a gang's ranks; what follows a failed one is the JobSpec's to say."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tuneyard.api import Blame, FailureKind, JobFailed, Retries, TuneyardError
from tuneyard.api.attempt_report import RankPlace
from tuneyard.api.retrying import answer_to
from tuneyard.runtime.environment import hide
from tuneyard.runtime.failures import Evidence, Lost, could_not_start, explain, first_to_fail, shrunk
from tuneyard.runtime.gang import Gangs
from tuneyard.runtime.log_shipper import tail_of
from tuneyard.runtime.mailbox import GangEnd, RankEnd, RankProcess, by_rank
from tuneyard.runtime.nodes import Nodes
from tuneyard.runtime.oom import oom_kills
from tuneyard.tracking import Emit, Placed, Stage, Warned, bottleneck_of
from tuneyard.training.lost_peer import is_collateral
from tuneyard.training.request import TrainRequest, TrainResult

ShouldStop = Callable[[], bool]

_POLL_S = 0.2
ASKED_HERE_S = 600.0
"""Seconds in which ranks must stop on one machine. It is long, because a person who waits can press Ctrl-C again."""
"""A step, and the checkpoint after it, may take so long after a stop was asked for."""
_SHOWN_LINES = 12
_SETTLE_S = 15.0
_LOST_GRACE_S = 10.0
"""A rank is gone, and Ray has not noticed: after so long the attempt ends without it."""
_BEGIN_LIMIT_S = 600.0
_OF_MACHINES = (FailureKind.NODE_LOST, FailureKind.NETWORK)
_OTHERS_S = 1.0
"""A rank has failed: what the others tell within so long helps to say which was the first."""
_KILL_LIMIT_S = 10.0
_TAIL_LIMIT_S = 20.0


@dataclass(frozen=True, kw_only=True)
class TrainSetting:
    """What the attempts of a task share. `logs` is a folder that the machines of the ranks have (or make) for themselves.

    `nodes`: the machines of a cluster that a hub has made for this attempt. The hub starts attempts elsewhere; here ranks start again
    only where the same machines can have them. `logs_uri`: where that cluster's logs are copied.
    """

    use_gpu: bool
    retries: Retries
    gangs: Gangs
    logs: Path
    nodes: Nodes | None = None
    logs_uri: str = ""
    source: str = "rank"
    """What logs of ranks are called there, before the number of the rank."""
    stop_grace_s: Callable[[], float] = lambda: ASKED_HERE_S
    """Seconds in which ranks must stop once they are asked."""
    repair_limit_s: float = 0.0
    """So long a lost pod may take to be replaced in place, before a hub looks for another member."""
    secrets: Sequence[str] = ()
    on_attempt: Callable[[TrainRequest], None] = lambda _request: None
    on_failure: Callable[[TrainRequest, TuneyardError], None] = lambda _request, _error: None

    @property
    def slot_kind(self) -> str:
        """What of a machine one rank takes, in Ray's words."""
        return "GPU" if self.use_gpu else "CPU"


def run_train(request: TrainRequest, setting: TrainSetting, emit: Emit, should_stop: ShouldStop) -> TrainResult:
    """Train until it succeeds, is asked to stop, or `retries` forbids another attempt.

    Every attempt starts from the newest committed checkpoint. Raises the last attempt's error.
    """
    if request.task.data.service is None:
        return _run_attempts(request, setting, emit, should_stop)
    from tuneyard.runtime.ingestion import TABLES, TOKENIZERS, Ingestion

    loads = TABLES if request.rank is not None else TOKENIZERS
    ingestion = Ingestion(request.job, request.name, request.task.data.service, loads=loads)
    try:
        result = _run_attempts(replace(request, ingestion=ingestion.name), setting, emit, should_stop)
        account = ingestion.report()
        return result if account is None else replace(result, details=_with_service(result, asdict(account)))
    finally:
        ingestion.close()


def _with_service(result: TrainResult, service: dict[str, Any]) -> dict[str, Any]:
    """Details of a result that its ingestion service knows more of: what fetching took, beside what making rows took."""
    details = {**result.details, "data_service": service}
    if "stream" not in details:
        return details
    return details | {"bottleneck": asdict(bottleneck_of(result.split, details["stream"], service))}


def _run_attempts(request: TrainRequest, setting: TrainSetting, emit: Emit, should_stop: ShouldStop) -> TrainResult:
    first = request.attempt
    places: list[str] = []
    while True:
        setting.on_attempt(request)
        try:
            return _Attempt(request, setting, emit, should_stop).run()
        except TuneyardError as error:
            setting.on_failure(request, error)
            following = _next_attempt(request, error, setting, starts=request.attempt - first + 1)
            if following is None or should_stop():
                raise
            if error.kind in _OF_MACHINES:
                places.append(error.blame.node)
            if not _can_go_on_here(error, setting, following.plan.workers, places, should_stop):
                raise
            emit(Warned(task=request.name, message=_announcement(error, following, first, setting.retries)))
            request = following


def _next_attempt(request: TrainRequest, error: TuneyardError, setting: TrainSetting, *, starts: int) -> TrainRequest | None:
    answer = answer_to(error.kind, setting.retries, failures=starts, place="here")
    if answer == "stop":
        return None
    plan = shrunk(request.plan) if answer == "shrink" else request.plan
    return None if plan is None else replace(request, plan=plan, attempt=request.attempt + 1, resume=True)


def _can_go_on_here(error: TuneyardError, setting: TrainSetting, workers: int, places: Sequence[str], should_stop: ShouldStop) -> bool:
    """Whether the next start of the ranks can be on the machines of this one; a hub looks for others where it cannot.

    The Ray cluster of a hub's attempt stays up when a rank or a worker pod dies, and KubeRay replaces the pod. `places`: Kubernetes'
    names of the nodes that failed so far, the last one last: one that fails twice is not trusted a third time.
    """
    if setting.nodes is None or error.kind not in _OF_MACHINES:
        return True
    if places[-1] and places.count(places[-1]) > 1:
        return False
    return setting.nodes.whole(workers, kind=setting.slot_kind, limit_s=setting.repair_limit_s, should_stop=should_stop)


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
    _places: dict[int, RankProcess] = field(default_factory=dict)
    _ended: dict[int, RankEnd] = field(default_factory=dict)
    _failed_since: float | None = None
    _short_since: float | None = None
    """Since when the machines have no room for all ranks that are to begin."""
    _began: float = field(default_factory=time.monotonic)

    def run(self) -> TrainResult:
        self._kills_before = self._oom_kills()
        self._gang = gang = self.setting.gangs.of(self.request.plan.workers, use_gpu=self.setting.use_gpu)
        self.emit(Stage(task=self.request.name, name=f"starting {gang.workers} rank{'' if gang.workers == 1 else 's'}"))
        gang.order(self.request, self.setting.logs)
        grace_s, stop_deadline = 0.0, None
        while True:
            self._read()
            if len(self._ended) == gang.workers and all(end.result is not None for end in self._ended.values()):
                result = self._ended[0].result
                assert result is not None
                return result
            self._check()
            if stop_deadline is None and self.should_stop():
                gang.ask_stop()
                grace_s = self.setting.stop_grace_s()
                stop_deadline = time.monotonic() + grace_s
            if stop_deadline is not None and time.monotonic() > stop_deadline:
                self._give_up()
                raise JobFailed(
                    f"task {self.request.name} did not stop within {grace_s:g} s; its processes were ended",
                    "go on with --resume from the last committed checkpoint",
                    kind=FailureKind.INTERNAL,
                )

    def _read(self) -> None:
        """Hand events on, and notice ranks that have begun, ended, or are lost with their machine."""
        nodes = self.setting.nodes
        # The ranks must be looked at before the mailbox is read: one that ends in between has said so by then.
        gone = nodes.gone([place for place in self._places.values() if place.rank not in self._ended]) if nodes is not None else []
        letters = self._gang.read(_POLL_S)
        self._welcome(letters.begun)
        for event in letters.events:
            self.emit(event)
        for remark in letters.remarks:
            self.emit(Warned(task=self.request.name, message=remark))
        self._ended = {end.rank: end for end in letters.ended} or self._ended
        known = {lost.rank for lost in self._lost} | set(self._ended)
        new = [self._lost_rank(place.rank) for place in gone if place.rank not in known]
        if new and not self._lost:
            self._lost_since = time.monotonic()
        self._lost += new

    def _check(self) -> None:
        """Raises the error of the attempt once a rank has failed and it is known which one was the first, or where the agents are gone."""
        now = time.monotonic()
        if any(end.result is None for end in self._ended.values()):
            self._failed_since = self._failed_since or now
        all_told = len(self._ended) == self._gang.workers
        if self._failed_since is not None and (all_told or now - self._failed_since > _OTHERS_S):
            self._look_for_lost_machines()
            self._give_up()
            raise self._explain_ends()
        if self._lost and now - self._lost_since > _LOST_GRACE_S:
            self._give_up()
            raise explain(self._evidence({}, []))
        if not self._gang.running:
            if self.setting.nodes is not None:
                # Ray tells first of the agents that lost a peer; which machine is gone shows a moment later.
                self.setting.nodes.settle(_SETTLE_S)
            self._read()
            raise self._explain(self._gang.end)
        if len(self._places) < self._gang.workers:
            self._check_beginning(now)

    def _check_beginning(self, now: float) -> None:
        """Raises where ranks cannot begin: a machine was lost and none has come in its place, or nothing has happened for long."""
        nodes = self.setting.nodes
        if nodes is None:
            return
        begun, workers = len(self._places), self._gang.workers
        if nodes.room(self.setting.slot_kind) >= workers or (gone := nodes.last_lost) is None:
            self._short_since = None
        elif self._short_since is None:
            self._short_since = now
        elif now - self._short_since > max(self.setting.repair_limit_s, _LOST_GRACE_S):
            self._give_up()
            raise JobFailed(
                f"{begun} of {workers} ranks began: {gone.pod} is lost, which {gone.lost}, and no machine has come in its place",
                "look at its pod: kubectl describe pod",
                kind=FailureKind.NODE_LOST,
                blame=Blame(node=gone.pod.node),
            )
        if now - self._began > _BEGIN_LIMIT_S:
            self._give_up()
            raise JobFailed(
                f"{begun} of {workers} ranks began within {_BEGIN_LIMIT_S:g} s: they do not reach each other, or have no room",
                "check the network between the nodes, and the interface that the Cluster object names",
                kind=FailureKind.NETWORK,
            )

    def _look_for_lost_machines(self) -> None:
        """Ranks that lost a peer tell so at once, and one that was killed may be the first sign of a machine that goes; that the whole
        machine is gone shows a moment later."""
        told = [end for end in self._ended.values() if end.result is None]
        of_their_own = any(end.error is not None or (end.raised and not is_collateral(end.raised)) for end in told)
        if self.setting.nodes is not None and not of_their_own:
            self.setting.nodes.settle(_SETTLE_S)
            self._read()

    def _give_up(self) -> None:
        """Kill the ranks that are left, so that the next start finds none of them."""
        left = set(self._places) - set(self._ended)
        self._gang.abandon()
        deadline = time.monotonic() + _KILL_LIMIT_S
        while left and self._gang.running and time.monotonic() < deadline and not any(lost.machine_lost for lost in self._lost):
            left -= {end.rank for end in self._gang.read(_POLL_S).ended}
        if left:  # an agent is gone with its machine, which Ray may not know yet
            self.setting.gangs.release()

    def _welcome(self, begun: list[RankProcess]) -> None:
        """Follow ranks that are new; say where all of them are, once all have begun."""
        if len(self._places) == len(begun):
            return
        self._places = {rank.rank: rank for rank in begun}
        for rank in begun:
            if self.setting.nodes is not None:
                self.setting.nodes.follow(rank, f"{self.setting.source}-{rank.rank}")
        if len(begun) == self._gang.workers:
            places = [RankPlace(rank=rank.rank, pod=rank.pod.name, node=rank.pod.node) for rank in begun]
            self.emit(Placed(task=self.request.name, ranks=tuple(places)))

    def _explain_ends(self) -> TuneyardError:
        """From what the ranks told, or did not tell, before any of them was killed by us."""
        ends = [end for end in self._ended.values() if end.result is None]
        self._lost += [self._lost_rank(end.rank) for end in ends if end.error is None and not end.raised]
        told = [end.error for end in by_rank(ends) if end.error is not None]
        raised = {end.rank: end.raised or f"{type(end.error).__name__}: {end.error}" for end in ends if end.raised or end.error is not None}
        return explain(self._evidence(raised, told))

    def _explain(self, end: GangEnd) -> TuneyardError:
        """From what Ray says of agents that are gone."""
        if not end.failures and not self._lost and not self._places:
            return could_not_start(self.request.name, _last_line(end.error))
        known = {lost.rank for lost in self._lost}
        self._lost += [self._lost_rank(rank) for rank in sorted(end.died - known)]
        # Ray names those that died by themselves; of what was seen to go at the same moment it may have ended the rest.
        self._lost.sort(key=lambda lost: lost.rank not in end.died)
        return explain(self._evidence(dict(end.failures) or ({0: end.error} if end.error else {}), []))

    def _lost_rank(self, rank: int) -> Lost:
        seen, end = self._places.get(rank), self._ended.get(rank)
        if seen is None:
            return Lost(rank)
        nodes = self.setting.nodes
        where = seen.host if nodes is None else str(seen.pod)
        why = nodes.why_lost(seen) if nodes is not None else ""
        return Lost(rank, seen.pid, where, seen.pod.node, why, end.exit_code if end is not None else None)

    def _evidence(self, raised: dict[int, str], told: list[TuneyardError]) -> Evidence:
        # A process was seen to go first, perhaps, and the rest of its machine after it; or the machine answers again by now.
        renewed = [(before, self._lost_rank(before.rank)) for before in self._lost]
        self._lost = [replace(now, machine_lost=now.machine_lost or before.machine_lost) for before, now in renewed]
        self._lost.sort(key=lambda lost: not lost.machine_lost)
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


def _last_line(text: str) -> str:
    return ([line.strip() for line in text.splitlines() if line.strip()] or ["Ray does not say why"])[-1]
