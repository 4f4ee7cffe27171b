"""Predicted starts of waiting tasks: the scheduler runs forward over the predicted ends of attempts."""

from __future__ import annotations

import heapq
import math
from dataclasses import replace

from tuneyard.federation.native import scheduler_of
from tuneyard.federation.policy import Policy, policy_of
from tuneyard.federation.pools import Key
from tuneyard.federation.world import Ask, Place, Preempt, Running, World, expected_end, running_of

_MOMENT_S = 1.0
"""Ends that are closer than this are one moment."""
_LOOK: Key = ("", "")
"""A moment without an end: attempts that were spared become candidates for preemption."""


def forecast(world: World, policy: Policy | str = "tuneyard", now: float = 0.0, *, limit: int = 1000) -> dict[Key, float]:
    """Predicted starts of the waiting tasks of `world`, by job and task, in seconds since the epoch. A task that could start now has `now`.

    The forecast assumes that attempts end as predicted, and that no further asks come. An attempt that has overrun its prediction needs as
    long again. A victim stops after its grace, and waits again with the rest of its prediction. The forecast stops after `limit` moments:
    an absent task starts later, or never. Pure; raises KeyError on an unknown policy.
    """
    course = _Course(world, policy_of(policy), now)
    for _ in range(limit + 1):
        course.decide()
        if course.is_over():
            break
        course.go_on()
    return course.starts


class _Course:
    """One run forward: its time, its scheduler, and the predicted ends of attempts."""

    def __init__(self, world: World, policy: Policy, now: float) -> None:
        self.starts: dict[Key, float] = {}
        self._at = now
        self._policy = policy
        self._scheduler = scheduler_of(world, policy, now)
        self._asks = {(ask.job, ask.task): ask for ask in self._scheduler.asks}
        self._back: dict[Key, Ask] = {}
        """Asks of victims, which wait again once they have stopped."""
        self._ends = {attempt.key: expected_end(attempt.ends, now) for attempt in self._scheduler.running}
        self._queue = [(end, *key) for key, end in self._ends.items()]
        heapq.heapify(self._queue)

    def decide(self) -> None:
        """One cycle."""
        for decision in self._scheduler.cycle(self._at):
            if isinstance(decision, Place):
                attempt = running_of(decision, self._at)
                if attempt.key in self._asks:
                    self.starts.setdefault(attempt.key, self._at)
                self._end(attempt.key, attempt.ends)
            elif isinstance(decision, Preempt):
                self._stop(decision.victim)
        if self._at < self._scheduler.again_at < math.inf:
            heapq.heappush(self._queue, (self._scheduler.again_at, *_LOOK))

    def is_over(self) -> bool:
        """Whether all starts are known, or no attempt ends any more."""
        return not self._queue or not self._scheduler.waiting or len(self.starts) == len(self._asks)

    def go_on(self) -> None:
        """Go to the next moment."""
        self._at = max(self._at, self._queue[0][0])
        while self._queue and self._queue[0][0] <= self._at + _MOMENT_S:
            end, job, task = heapq.heappop(self._queue)
            if (job, task) != _LOOK and self._ends.get((job, task)) != end:
                continue  # a victim, which stops earlier
            self._at = max(self._at, end)
            if self._ends.pop((job, task), None) is not None:
                self._scheduler.release(job, task, self._at)
                if (job, task) in self._back:
                    self._scheduler.add(self._back.pop((job, task)))

    def _end(self, key: Key, at: float) -> None:
        self._ends[key] = at
        heapq.heappush(self._queue, (at, *key))

    def _stop(self, victim: Running) -> None:
        left_s = self._ends[victim.key] - self._at
        if left_s > self._policy.grace_s:
            self._back[victim.key] = self._rest(victim, left_s)
            self._end(victim.key, self._at + self._policy.grace_s)

    def _rest(self, victim: Running, left_s: float) -> Ask:
        """The ask of a victim for the rest of its duration: its earlier ask, or, where that is unknown, one for as many GPUs of any SKU."""
        like = self._asks.get(victim.key) or Ask(
            job=victim.job, task=victim.task, team=victim.team, priority=victim.priority, created=victim.started, worlds=(victim.gpus,)
        )
        per_second = self._policy.speed(replace(like, seconds=1.0), victim.sku, victim.gpus)
        return replace(like, seconds=left_s / per_second + self._policy.restart_s, owed_since=None)
