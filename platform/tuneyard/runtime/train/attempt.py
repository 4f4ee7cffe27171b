"""One start of all ranks of a train task: orders them from the gang, watches them, stops them, and explains their failure."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tuneyard.api import Blame, FailureKind, JobFailed, Retries, TuneyardError
from tuneyard.api.attempt_report import RankPlace
from tuneyard.runtime.gang.gang import Gangs
from tuneyard.runtime.gang.mailbox import GangEnd, RankEnd, RankProcess, by_rank
from tuneyard.runtime.interrupt import ShouldStop
from tuneyard.runtime.machines import LogName, Machines, rank_log
from tuneyard.runtime.train.failures import Evidence, Lost, could_not_start, explain, first_to_fail
from tuneyard.tracking import Emit, Placed, Stage, StepsBegin, Warned
from tuneyard.training.lost_peer import is_collateral
from tuneyard.training.request import TrainRequest, TrainResult

_POLL_S = 0.2
_LOST_GRACE_S = 10.0
"""Seconds after the loss of a rank until the attempt ends, even if Ray has not noticed the loss."""
_OTHERS_S = 1.0
"""Seconds after a failure of a rank in which reports of the others are awaited, to tell which rank failed first."""
_KILL_LIMIT_S = 10.0


@dataclass(frozen=True, kw_only=True)
class TrainSetting:
    """Settings that all starts of one task share.

    `source`: name of the copied logs of its ranks, before the number of the rank. `stop_grace_s`: seconds that ranks have to stop.
    `gangs`: who keeps the gang of its ranks; None: the machines, from task to task. `beside`: ranks of other gangs on the same machines.
    `on_attempt` and `on_failure` are called for each start, and for each failure.
    """

    machines: Machines
    retries: Retries
    stop_grace_s: Callable[[], float]
    source: str = "rank"
    secrets: Sequence[str] = ()
    gangs: Gangs | None = None
    beside: int = 0
    on_attempt: Callable[[TrainRequest], None] = lambda _request: None
    on_failure: Callable[[TrainRequest, TuneyardError], None] = lambda _request, _error: None

    @property
    def held(self) -> Gangs:
        """The gang that the ranks start in."""
        return self.gangs if self.gangs is not None else self.machines.gangs


class StoppedBeforeSteps(Exception):
    """A stop was asked for before the first step. The ranks had nothing to save, and were killed. It is no failure."""


@dataclass
class TrainAttempt:
    """One start of all ranks. Call `run` once."""

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
    """Since when the machines lack room for all ranks, while ranks still start."""
    _makes_steps: bool = False
    _began: float = field(default_factory=time.monotonic)

    def run(self) -> TrainResult:
        """Run the ranks. Returns the result of rank 0 once all ranks have ended. Raises the error of the attempt, or StoppedBeforeSteps."""
        self._kills_before = self._machines.oom_kills()
        self._gang = gang = self.setting.held.of(self.request.plan.workers, use_gpu=self._machines.machine.has_gpus)
        self.emit(Stage(task=self.request.name, name=f"starting {gang.workers} rank{'' if gang.workers == 1 else 's'}"))
        gang.order(self.request, self._machines.logs)
        grace_s, stop_deadline = 0.0, None
        while True:
            self._read()
            if len(self._ended) == gang.workers and all(end.result is not None for end in self._ended.values()):
                result = self._ended[0].result
                assert result is not None
                return result
            self._check()
            if stop_deadline is None and self.should_stop():
                if not self._makes_steps:  # a rank that loads reads no flag: it would load to the end, and train a step
                    self._give_up()
                    raise StoppedBeforeSteps
                gang.ask_stop()
                grace_s = self.setting.stop_grace_s()
                stop_deadline = time.monotonic() + grace_s
            if stop_deadline is not None and time.monotonic() > stop_deadline:
                self._give_up()
                raise JobFailed(
                    f"task {self.request.name} did not stop within {grace_s:g} s; its processes were ended",
                    self._machines.after_stop,
                    kind=FailureKind.INTERNAL,
                )

    @property
    def _machines(self) -> Machines:
        return self.setting.machines

    def _log(self, rank: int) -> LogName:
        return rank_log(self.request.name, rank, self.setting.source)

    # What the ranks tell

    def _read(self) -> None:
        """Pass on events, and record ranks that have started, ended, or are lost with their machine."""
        # Look for lost ranks before reading the mailbox: the mailbox then has the end of every rank that ended by itself.
        gone = self._machines.gone([place for place in self._places.values() if place.rank not in self._ended])
        letters = self._gang.read(_POLL_S)
        self._welcome(letters.begun)
        for event in letters.events:
            self._makes_steps = self._makes_steps or isinstance(event, StepsBegin)
            self.emit(event)
        for remark in letters.remarks:
            self.emit(Warned(task=self.request.name, message=remark))
        self._ended = {end.rank: end for end in letters.ended} or self._ended
        known = {lost.rank for lost in self._lost} | set(self._ended)
        new = [self._lost_rank(place.rank) for place in gone if place.rank not in known]
        if new and not self._lost:
            self._lost_since = time.monotonic()
        self._lost += new

    def _welcome(self, begun: list[RankProcess]) -> None:
        """Follow new ranks, and report the places of all ranks once all have started."""
        if len(self._places) == len(begun):
            return
        self._places = {rank.rank: rank for rank in begun}
        for rank in begun:
            self._machines.follow(rank, self._log(rank.rank))
        if len(begun) == self._gang.workers:
            places = [RankPlace(rank=rank.rank, pod=rank.pod.name, node=rank.pod.node) for rank in begun]
            self.emit(Placed(task=self.request.name, ranks=tuple(places)))

    # When it has failed

    def _check(self) -> None:
        """Raises the error of the attempt once a rank has failed and the first one to fail is known, or once the agents are gone."""
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
            # Ray first reports the agents that lost a peer. The lost machine is known a moment later.
            self._machines.settle()
            self._read()
            raise self._explain(self._gang.end)
        if len(self._places) < self._gang.workers:
            self._check_beginning(now)

    def _check_beginning(self, now: float) -> None:
        """Raises JobFailed if ranks cannot start: a lost machine was not replaced, or the time limit is over."""
        begun, workers = len(self._places), self._gang.workers
        gone = self._machines.short_of(workers + self.setting.beside)
        if gone is None:
            self._short_since = None
        elif self._short_since is None:
            self._short_since = now
        elif now - self._short_since > max(self._machines.repair_limit_s, _LOST_GRACE_S):
            self._give_up()
            raise JobFailed(
                f"{begun} of {workers} ranks began: {gone.pod} is lost, which {gone.why}, and no machine has replaced it",
                "look at its pod: kubectl describe pod",
                kind=FailureKind.NODE_LOST,
                blame=Blame(node=gone.pod.node),
            )
        if now - self._began > self._machines.begin_limit_s:
            self._give_up()
            within = f"within {self._machines.begin_limit_s:g} s"
            raise JobFailed(
                f"{begun} of {workers} ranks began {within}: they do not reach each other, or have no room",
                "check the network between the nodes, and the interface that the Cluster object names",
                kind=FailureKind.NETWORK,
            )

    def _look_for_lost_machines(self) -> None:
        """Wait for news of a lost machine, if it may explain the failure. A rank that lost a peer reports it at once, and a killed rank may
        be the first sign of a lost machine; the loss of the whole machine is known a moment later."""
        told = [end for end in self._ended.values() if end.result is None]
        if not any(end.error is not None or (end.raised and not is_collateral(end.raised)) for end in told):
            self._machines.settle()
            self._read()

    def _give_up(self) -> None:
        """Kill the remaining ranks, so that the next start meets none of them."""
        left = set(self._places) - set(self._ended)
        self._gang.abandon()
        deadline = time.monotonic() + _KILL_LIMIT_S
        while left and self._gang.running and time.monotonic() < deadline and not any(lost.machine_lost for lost in self._lost):
            left -= {end.rank for end in self._gang.read(_POLL_S).ended}
        if left:  # an agent is lost with its machine, and Ray may not know it yet
            self.setting.held.release()

    # Why it has failed

    def _explain_ends(self) -> TuneyardError:
        """The error by the reports of the ranks, and by ranks that died without one, before this attempt killed any."""
        ends = [end for end in self._ended.values() if end.result is None]
        self._lost += [self._lost_rank(end.rank) for end in ends if end.error is None and not end.raised]
        told = [end.error for end in by_rank(ends) if end.error is not None]
        raised = {end.rank: end.raised or f"{type(end.error).__name__}: {end.error}" for end in ends if end.raised or end.error is not None}
        return explain(self._evidence(raised, told))

    def _explain(self, end: GangEnd) -> TuneyardError:
        """The error by Ray's report on the agents."""
        if not end.failures and not self._lost and not self._places:
            return could_not_start(self.request.name, _last_line(end.error))
        known = {lost.rank for lost in self._lost}
        self._lost += [self._lost_rank(rank) for rank in sorted(end.died - known)]
        # Ray names the agents that died by themselves. It may have ended the other lost ranks itself: they come last.
        self._lost.sort(key=lambda lost: lost.rank not in end.died)
        return explain(self._evidence(dict(end.failures) or ({0: end.error} if end.error else {}), []))

    def _lost_rank(self, rank: int) -> Lost:
        seen, end = self._places.get(rank), self._ended.get(rank)
        if seen is None:
            return Lost(rank)
        why, code = self._machines.why_lost(seen), end.exit_code if end is not None else None
        return Lost(rank, seen.pid, str(seen.pod), seen.pod.node, why, code)

    def _evidence(self, raised: dict[int, str], told: list[TuneyardError]) -> Evidence:
        # A process may have been lost first, and its machine a moment later; or a lost machine may answer again by now.
        renewed = [(before, self._lost_rank(before.rank)) for before in self._lost]
        self._lost = [replace(now, machine_lost=now.machine_lost or before.machine_lost) for before, now in renewed]
        self._lost.sort(key=lambda lost: not lost.machine_lost)
        log = self._log(first_to_fail(self._lost, raised) or 0)
        tail = self._machines.tail(log)
        return Evidence(
            lost=self._lost,
            raised=raised,
            told=told,
            oom_kills=self._machines.oom_kills() - self._kills_before,
            log=self._machines.address(log),
            log_tail=tail,
            quoted=self._machines.quoted(tail),
            go_on=self._machines.go_on,
        )


def _last_line(text: str) -> str:
    return ([line.strip() for line in text.splitlines() if line.strip()] or ["Ray does not say why"])[-1]
