"""Facts about a job on the hub in few letters, the same in tables, pages and progress lines."""

from __future__ import annotations

from datetime import UTC, datetime

from tuneyard.api import Attempt, Phase, PlacementStatus
from tuneyard.api import Progress as Steps
from tuneyard.cli.progress_state import clock, share
from tuneyard.cluster import HubJob

_EIGHTHS = " ▏▎▍▌▋▊▉"


def state(job: HubJob) -> str:
    """Its phase, or what someone has asked for that has not come to its end."""
    if job.deleting:
        return "Deleting"
    if job.cancelled and not job.phase.final:
        return "Cancelling"
    return str(job.phase)


def fraction(steps: Steps) -> float | None:
    """0..1; None where the length is not known."""
    return min(1.0, steps.step / steps.of) if steps.of else None


def percent(steps: Steps) -> str:
    """`40/120 33%`, or the stage of work outside the steps, or nothing."""
    done = fraction(steps)
    counted = f"{steps.step}/{steps.of}" if steps.of else ""
    if steps.summary and steps.summary != counted:
        return steps.summary
    return f"{counted} {done:.0%}" if done is not None else ""


def bar(done: float, width: int = 10) -> str:
    """`███▍······`, in eighths of a letter."""
    eighths = round(done * width * 8)
    full, rest = divmod(eighths, 8)
    text = "█" * full + (_EIGHTHS[rest] if rest else "")
    return text + "·" * (width - len(text))


def figures(steps: Steps) -> list[str]:
    """`loss 1.832`, `5,230 tokens/s`, `MFU 31%`, `ETA 1:02`: the known ones."""
    return [
        *([f"loss {steps.loss:.3f}"] if steps.loss is not None else []),
        *([f"{steps.tokens_per_s:,.0f} tokens/s"] if steps.tokens_per_s is not None else []),
        *([f"MFU {share(steps.mfu)}"] if steps.mfu is not None else []),
        *([f"ETA {clock(steps.eta_s)}"] if steps.eta_s is not None else []),
    ]


def place(placement: PlacementStatus) -> str:
    """`gcp-h100, 16 x h100-80gb on 2 nodes`."""
    nodes = f" on {len(placement.nodes)} node{'s' * (len(placement.nodes) != 1)}" if placement.nodes else ""
    return f"{placement.cluster}, {placement.gpus or placement.workers} x {placement.sku}{nodes}"


def age(seconds: float) -> str:
    """`45s`, `12m`, `3h`, `2d`, as kubectl says it."""
    whole = max(0, int(seconds))
    for limit, unit, size in ((120, "s", 1), (7200, "m", 60), (172_800, "h", 3600)):
        if whole < limit:
            return f"{whole // size}{unit}"
    return f"{whole // 86_400}d"


def seconds_since(moment: str | datetime, now: datetime) -> float:
    """Seconds from an RFC 3339 time until `now`."""
    return (now - _moment(moment)).total_seconds()


def took(attempt: Attempt, now: datetime) -> str | None:
    """How long an attempt has run, from its placement; None before that."""
    began = attempt.placed_at or attempt.started_at
    if not began:
        return None
    end = _moment(attempt.ended_at) if attempt.ended_at else now
    return clock((end - _moment(began)).total_seconds())


def attempt_state(attempt: Attempt) -> str:
    """`Failed (NodeLost)`, `Running`, `Running, stopping (Preempted)`."""
    if attempt.failure and attempt.phase is Phase.FAILED:
        return f"Failed ({attempt.failure})"
    stopping = f", stopping ({attempt.stopping})" if attempt.stopping and not attempt.ended_at else ""
    return f"{attempt.phase}{stopping}"


def _moment(moment: str | datetime) -> datetime:
    found = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    return found if found.tzinfo else found.replace(tzinfo=UTC)
