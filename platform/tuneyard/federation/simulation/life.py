"""One job in a simulation: its remaining work, the GPUs that it holds, and its lost GPU time."""

from __future__ import annotations

from dataclasses import dataclass, field

from tuneyard.federation.simulation.scenario import Checkpoints, TraceJob
from tuneyard.federation.world import Ask, Place, Running

TASK = "train"


@dataclass
class Attempt:
    """GPUs held since `started`. Work continues from `ready` on, at `slowdown` seconds per second on the reference SKU.

    `notice`: when it was asked to save a checkpoint and to stop.
    """

    number: int
    place: Place
    started: float
    ready: float
    slowdown: float
    ends: float
    notice: float | None = None

    def worked_s(self, now: float) -> float:
        """Wall time of work so far."""
        return max(0.0, min(now, self.ends) - self.ready)


@dataclass(frozen=True)
class Stay:
    """GPUs of a SKU that an attempt held from `started` to `ended`."""

    sku: str
    gpus: int
    started: float
    ended: float


@dataclass
class Life:
    """One job. `factor`: the scheduler's estimates over the true durations. `left_s`: remaining work after the last kept checkpoint, in
    seconds on the reference SKU. `stays`: its ended attempts."""

    index: int
    job: TraceJob
    factor: float
    checkpoints: Checkpoints
    left_s: float
    queued_at: float
    attempts: int = 0
    attempt: Attempt | None = None
    ended_at: float | None = None
    waited_s: float = 0.0
    held_gpu_s: float = 0.0
    lost_gpu_s: float = 0.0
    preemptions: int = 0
    failures: int = 0
    refused: str = ""
    stays: list[Stay] = field(default_factory=list)

    def ask(self) -> Ask:
        """Its ask now. The age of the ask is that of the job's submission, however often the job was interrupted."""
        restart_s = self.checkpoints.restart_s if self.attempts else 0.0
        job = self.job
        return Ask(
            job=job.name,
            task=TASK,
            team=job.team,
            priority=job.priority,
            created=job.submit_s,
            worlds=job.worlds,
            skus=job.skus,
            seconds=self.left_s * self.factor + restart_s,
            basis="given",
        )

    def start(self, place: Place, now: float) -> Attempt:
        """Begin an attempt. The work takes longer on a slower SKU, by the factor that the scheduler predicts."""
        ready = now + (self.checkpoints.restart_s if self.attempts else 0.0)
        slowdown = place.seconds / place.ask.seconds if place.ask.seconds > 0 else 1.0
        self.attempts += 1
        self.waited_s += now - self.queued_at
        self.attempt = Attempt(self.attempts, place, now, ready, slowdown, ready + self.left_s * slowdown)
        return self.attempt

    def saved_at(self, now: float) -> float:
        """When the last checkpoint of its attempt was committed; its start where there is none."""
        attempt = self._running()
        kept_s = self.checkpoints.kept_s(attempt.worked_s(now))
        return attempt.ready + kept_s if kept_s else attempt.started

    def end(self) -> None:
        """All work is done."""
        attempt = self._running()
        self._account(attempt.ends, attempt.ends - attempt.ready)
        self.left_s = 0.0
        self.ended_at = attempt.ends

    def fail(self, now: float) -> None:
        """One of its machines has failed: work since the last checkpoint must be done again."""
        self.failures += 1
        self._stop(now, self.checkpoints.kept_s(self._running().worked_s(now)))

    def yield_to_others(self, now: float) -> None:
        """Stop as a victim. Work up to the notice is kept, where the job has checkpoints."""
        attempt = self._running()
        assert attempt.notice is not None
        self.preemptions += 1
        self._stop(now, attempt.worked_s(attempt.notice) if self.checkpoints.every_s else 0.0)

    def as_running(self, now: float) -> Running:
        """Its attempt as the scheduler sees it."""
        attempt = self._running()
        place = attempt.place
        return Running(
            job=self.job.name,
            task=TASK,
            team=self.job.team,
            priority=self.job.priority,
            cluster=place.cluster,
            sku=place.sku,
            nodes=place.nodes,
            started=attempt.started,
            ends=attempt.started + place.seconds,
            saved=self.saved_at(now),
            stopping=attempt.notice is not None,
            preempted=self.preemptions,
        )

    def _stop(self, now: float, kept_s: float) -> None:
        attempt = self._running()
        self._account(now, kept_s)
        self.left_s = max(0.0, self.left_s - kept_s / attempt.slowdown)
        self.queued_at = now

    def _account(self, now: float, kept_s: float) -> None:
        """End the attempt. GPU time that is not kept work is lost: work to be done again, restarts, and the grace of a victim."""
        attempt = self._running()
        held_s = now - attempt.started
        self.held_gpu_s += attempt.place.workers * held_s
        self.lost_gpu_s += attempt.place.workers * (held_s - kept_s)
        self.stays.append(Stay(attempt.place.sku, attempt.place.workers, attempt.started, now))
        self.attempt = None

    def _running(self) -> Attempt:
        assert self.attempt is not None, f"{self.job.name} does not run"
        return self.attempt
