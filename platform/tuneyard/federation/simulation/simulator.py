"""The event loop of a simulation: jobs are submitted, end and are preempted; machines fail and return. One scheduling cycle follows each
moment.

The scheduler is the hub's. It knows only the facts of a hub: estimates instead of true durations, the last checkpoint of each attempt,
machines as they report. Events less than a second apart are one moment, as for a hub that looks once a second.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from tuneyard.federation.guesses import Guesses
from tuneyard.federation.native import new_scheduler
from tuneyard.federation.scheduler import Scheduler
from tuneyard.federation.simulation.fleet import Fleet, Slot
from tuneyard.federation.simulation.life import TASK, Life
from tuneyard.federation.simulation.outages import Outages
from tuneyard.federation.simulation.scenario import ORACLES, Scenario, TraceJob
from tuneyard.federation.simulation.series import Series
from tuneyard.federation.world import Infeasible, Member, Place, Preempt

Progress = Callable[[int, float], None]
"""Gets the number of ended jobs, and the time of the simulation."""
Observe = Callable[[Scheduler, float], None]
"""Gets the scheduler after each cycle, and the time. It must not change the scheduler."""

_MOMENT_S = 1.0
_EVERY_MOMENTS = 200


class _Kind(IntEnum):
    """Kinds of events, in the order of events of the same instant: events that free GPUs come first."""

    END = 0
    STOP = 1
    BACK = 2
    LOSS = 3
    SUBMIT = 4
    LOOK = 5


_Event = tuple[float, _Kind, int, int, Slot]
"""Time, kind, index of the job, number of its attempt, machine. 0 and `_NOWHERE` where there is none."""
_NOWHERE: Slot = ("", "")


@dataclass(frozen=True)
class Run:
    """The raw results of a simulation. Times count from the first submission. `cycle_s`: seconds in cycles, by the given clock."""

    scenario: Scenario
    lives: Sequence[Life]
    series: Series
    total_gpus: int
    ended_s: float
    node_failures: int
    member_failures: int
    cycles: int
    cycle_s: float


def simulate(
    jobs: Sequence[TraceJob],
    members: Sequence[Member],
    scenario: Scenario,
    rng: np.random.Generator,
    *,
    clock: Callable[[], float] = lambda: 0.0,
    progress: Progress | None = None,
    observe: Observe | None = None,
) -> Run:
    """Run a trace to its end, or to `scenario.until_s`.

    `rng`: source of noise and failures; the same seed gives the same ones under every policy. `clock`: seconds, for the cost of a cycle.
    `observe`: sees the scheduler after each cycle.
    Raises KeyError on an unknown policy, and RuntimeError where the scheduler places a job on GPUs that are not free.
    """
    return _Simulation(jobs, members, scenario, rng, clock).run(progress or (lambda *_: None), observe or (lambda *_: None))


class _Simulation:
    def __init__(
        self, jobs: Sequence[TraceJob], members: Sequence[Member], scenario: Scenario, rng: np.random.Generator, clock: Callable[[], float]
    ) -> None:
        noises, failures = rng.spawn(2)
        self._scenario = scenario
        self._clock = clock
        self._scheduler = new_scheduler(scenario.policy)
        self._guesses = Guesses()
        self._waiting: dict[int, None] = {}
        self._fleet = Fleet(members)
        self._outages = Outages(members, scenario.failures, failures)
        self._series = Series()
        self._events: list[_Event] = []
        self._saves: list[tuple[float, int, int]] = []
        """The time of each attempt's next checkpoint, with job and attempt. It is no event, because a checkpoint needs no cycle."""
        self._lives = _lives(jobs, scenario, noises)
        self._index = {life.job.name: life.index for life in self._lives}
        self._tells_saves = _may_preempt(jobs, scenario)
        self._open = len(self._lives)
        self._running = self._queued_jobs = self._queued_gpus = 0
        self._node_failures = self._member_failures = self._cycles = 0
        self._cycle_s = 0.0
        self._looks_at = math.inf

    def run(self, progress: Progress, observe: Observe) -> Run:
        self._begin()
        now = 0.0
        moments = 0
        while self._open and self._events:
            if self._stuck():
                break
            now, due = self._moment(now)
            if self._scenario.until_s is not None and now > self._scenario.until_s:
                now = self._scenario.until_s
                break
            for event in due:
                self._happen(event)
            self._cycle(now)
            observe(self._scheduler, now)
            self._series.note(now, self._queued_jobs, self._queued_gpus, self._fleet.held)
            moments += 1
            if moments % _EVERY_MOMENTS == 0:
                progress(len(self._lives) - self._open, now)
        self._series.note(now, self._queued_jobs, self._queued_gpus, self._fleet.held)
        progress(len(self._lives) - self._open, now)
        return Run(
            scenario=self._scenario,
            lives=self._lives,
            series=self._series,
            total_gpus=self._fleet.total,
            ended_s=now,
            node_failures=self._node_failures,
            member_failures=self._member_failures,
            cycles=self._cycles,
            cycle_s=self._cycle_s,
        )

    def _begin(self) -> None:
        for name in self._fleet.members:
            self._scheduler.set_member(self._fleet.facts(name))
        for team in self._scenario.teams:
            self._scheduler.set_team(team)
        self._events = [(life.job.submit_s, _Kind.SUBMIT, life.index, 0, _NOWHERE) for life in self._lives]
        self._events += [(at, _Kind.LOSS, 0, 0, slot) for at, slot in self._outages.first()]
        heapq.heapify(self._events)

    def _moment(self, now: float) -> tuple[float, list[_Event]]:
        """The end of the next moment, and its events. An event that the last moment caused within itself is moved into this moment: time
        does not run back."""
        due = [heapq.heappop(self._events)]
        first = max(now, due[0][0])
        while self._events and self._events[0][0] < first + _MOMENT_S:
            due.append(heapq.heappop(self._events))
        return max(now, due[-1][0]), [(max(now, event[0]), *event[1:]) for event in due]

    def _stuck(self) -> bool:
        """Whether no waiting job will ever start: no job runs, no machine is away, and only failures are to come."""
        waiting_for_nobody = self._cycles > 0 and not self._running and self._fleet.whole
        return waiting_for_nobody and all(kind is _Kind.LOSS for _, kind, *_ in self._events)

    def _happen(self, event: _Event) -> None:
        at, kind, index, number, slot = event
        if kind is _Kind.SUBMIT:
            self._queue(self._lives[index])
        elif kind is _Kind.LOSS:
            self._lose(slot, at)
        elif kind is _Kind.BACK:
            self._fleet.mend(slot)
            self._scheduler.set_member(self._fleet.facts(slot[0]))
            self._push_failure(slot, at)
        elif kind is not _Kind.LOOK:
            life = self._lives[index]
            if life.attempt is not None and life.attempt.number == number:
                self._leave(life, at)
                self._is_over(life, kind, at)

    def _is_over(self, life: Life, kind: _Kind, at: float) -> None:
        if kind is _Kind.END:
            life.end()
            self._open -= 1
            self._learn(life, at)
        else:
            life.yield_to_others(at)
            self._queue(life)

    def _lose(self, slot: Slot, at: float) -> None:
        if slot[1]:
            self._node_failures += 1
        else:
            self._member_failures += 1
        for index in self._fleet.lose(slot):
            life = self._lives[index]
            self._leave(life, at)
            life.fail(at)
            self._queue(life)
        self._scheduler.set_member(self._fleet.facts(slot[0]))
        heapq.heappush(self._events, (self._outages.back(slot, at), _Kind.BACK, 0, 0, slot))

    def _push_failure(self, slot: Slot, at: float) -> None:
        following = self._outages.next_failure(slot, at)
        if following is not None:
            heapq.heappush(self._events, (following, _Kind.LOSS, 0, 0, slot))

    def _learn(self, life: Life, at: float) -> None:
        """Correct the guesses of a team by an ended job, and ask again for its waiting jobs."""
        if not self._scheduler.policy.corrects_guesses:
            return
        said_s = life.job.duration_s * life.factor
        if self._guesses.learn((life.job.name, TASK), life.job.team, said_s, life.job.duration_s, at):
            for index in self._waiting:
                if self._lives[index].job.team == life.job.team:
                    self._ask(self._lives[index])

    def _ask(self, life: Life) -> None:
        ask = life.ask()
        if self._scheduler.policy.corrects_guesses:
            ask = self._guesses.corrected(ask)
        known = self._scheduler.ask(ask.job, ask.task)
        self._scheduler.add(ask if known is None else replace(ask, owed_since=known.owed_since))

    def _queue(self, life: Life) -> None:
        self._ask(life)
        self._waiting[life.index] = None
        self._queued_jobs += 1
        self._queued_gpus += life.job.gpus

    def _unqueue(self, life: Life) -> None:
        del self._waiting[life.index]
        self._queued_jobs -= 1
        self._queued_gpus -= life.job.gpus

    def _leave(self, life: Life, at: float) -> None:
        """Free the GPUs of an attempt that is over."""
        assert life.attempt is not None
        place = life.attempt.place
        self._fleet.give_back(life.index, place.cluster, place.nodes)
        self._scheduler.release(life.job.name, TASK, at)
        self._running -= 1

    def _cycle(self, now: float) -> None:
        if self._tells_saves:
            self._tell_saves(now)
        began = self._clock()
        decisions = self._scheduler.cycle(now)
        self._cycle_s += self._clock() - began
        self._cycles += 1
        for decision in decisions:
            if isinstance(decision, Place):
                self._start(decision, now)
            elif isinstance(decision, Preempt):
                self._notify(decision, now)
            else:
                self._refuse(decision)
        self._look_again()

    def _look_again(self) -> None:
        """Add a moment at which spared attempts become candidates for preemption."""
        at = self._scheduler.again_at
        if at != self._looks_at and at < math.inf:
            self._looks_at = at
            heapq.heappush(self._events, (at, _Kind.LOOK, 0, 0, _NOWHERE))

    def _start(self, place: Place, now: float) -> None:
        life = self._lives[self._index[place.ask.job]]
        self._unqueue(life)
        self._fleet.take(life.index, place.cluster, place.nodes)
        attempt = life.start(place, now)
        self._running += 1
        heapq.heappush(self._events, (attempt.ends, _Kind.END, life.index, attempt.number, _NOWHERE))
        if self._tells_saves:
            self._push_save(life, now)
            if life.preemptions:  # the scheduler knows earlier preemptions from the start
                self._scheduler.hold(life.as_running(now), now)

    def _push_save(self, life: Life, now: float) -> None:
        attempt, every_s = life.attempt, self._scenario.checkpoints.every_s
        if attempt is not None and every_s:
            following = attempt.ready + (attempt.worked_s(now) // every_s + 1) * every_s
            if following <= now:  # rounded: the work up to `now` counts as a little less than whole intervals
                following += every_s
            if following < attempt.ends:
                heapq.heappush(self._saves, (following, life.index, attempt.number))

    def _tell_saves(self, now: float) -> None:
        """Tell the scheduler the checkpoints that were committed since its last cycle."""
        while self._saves and self._saves[0][0] <= now:
            _, index, number = heapq.heappop(self._saves)
            life = self._lives[index]
            if life.attempt is not None and life.attempt.number == number:
                self._scheduler.hold(life.as_running(now), now)
                self._push_save(life, now)

    def _notify(self, decision: Preempt, now: float) -> None:
        """Give a victim its notice. A victim whose work is done before its grace is over still ends as a success."""
        life = self._lives[self._index[decision.victim.job]]
        assert life.attempt is not None
        if life.attempt.notice is None:
            life.attempt.notice = now
            stop = now + self._scheduler.policy.grace_s
            heapq.heappush(self._events, (stop, _Kind.STOP, life.index, life.attempt.number, _NOWHERE))

    def _refuse(self, decision: Infeasible) -> None:
        life = self._lives[self._index[decision.ask.job]]
        self._scheduler.withdraw(decision.ask.job, decision.ask.task)
        self._unqueue(life)
        life.refused = decision.reason
        self._open -= 1


def _lives(jobs: Sequence[TraceJob], scenario: Scenario, rng: np.random.Generator) -> list[Life]:
    """One life for each job. The noise is drawn even where the policy ignores it, so that all policies see the same draws."""
    factors = np.exp(rng.normal(0.0, scenario.noise, len(jobs))).tolist()
    knows = scenario.settings.name in ORACLES
    return [
        Life(
            index=index,
            job=job,
            factor=1.0 if knows else factors[index] * job.stated_over_true,
            checkpoints=scenario.checkpoints,
            left_s=job.duration_s,
            queued_at=job.submit_s,
        )
        for index, job in enumerate(jobs)
    ]


def _may_preempt(jobs: Sequence[TraceJob], scenario: Scenario) -> bool:
    """Whether the scheduler could preempt any attempt. If not, it needs no checkpoints, which outnumber all events."""
    ranks = {job.priority for job in jobs}
    settings = scenario.settings
    return settings.preempts and (len(ranks) > 1 or settings.starves_from > 0 or any(team.quota is not None for team in scenario.teams))
