"""The words for each fact of a job's progress, the same in terminals, notebooks, `status`, reports to the hub and logs. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from tuneyard.api import FailureKind, PlacementStatus
from tuneyard.tracking.events import Checkpointed, Evaluated, Event, Placed, Preflighted, Warned
from tuneyard.tracking.formats import percent, rate
from tuneyard.tracking.progress.fold import EndedAttempt, StageProgress, TaskProgress

STOPPING = "stopping at the next step, keeping the checkpoint; Ctrl-C again to end at once"
_SHOWN = 3
"""Figures of a program in a line."""
_FAILURES = {FailureKind.DEADLINE.value: "its time was over"}
"""Kinds of failure that people read in other words."""
_LEFT = r"(?:, about (?P<left>[\d:]{1,12}) left)?"
_STAGE = re.compile(rf"(?P<name>.*) (?P<done>[\d,]+)/(?P<of>[\d,]+)(?: (?P<unit>[^\s,]+))?{_LEFT}", re.DOTALL)


def doing(task: TaskProgress) -> str:
    """`step 12/400`, `loading the model`, `tokenising 3/9 samples`, `rows 12/64`, `trial 3/8`."""
    if task.stage is not None:
        return stage_words(task.stage)
    if task.count is not None:
        return f"{task.count.noun} {task.count.done}/{task.count.of}"
    return "running" if task.begun else "starting"


def figures(task: TaskProgress) -> list[str]:
    """`loss 3.214`, `5,230 tokens/s`, `MFU 31.2%`, `1.2 GB`, `ETA 1:02`: the known ones."""
    if task.count is None:
        return []
    noun, eta_s = task.count.noun, eta_s_of(task)
    return [
        *([f"loss {loss_words(task)}"] if noun == "step" else []),
        *([f"held-out {task.held_out_loss:.3f}{_of_step(task)}"] if task.held_out_loss is not None else []),
        *([f"NE {task.entropy:.4f}"] if task.entropy is not None else []),
        *[f"{name} {value:.4f}" for name, value in task.held_out[:_SHOWN]],
        *([f"accuracy {percent(task.accuracy)}"] if task.accuracy is not None else []),
        *_rate(task),
        *([f"MFU {percent(task.mfu)}"] if task.mfu is not None else []),
        *([f"{task.memory_gb:.1f} GB"] if task.memory_gb is not None else []),
        *([f"{task.errors} error{'s' * (task.errors != 1)}"] if task.errors else []),
        *([f"ETA {clock(eta_s)}"] if eta_s is not None else []),
    ]


def _of_step(task: TaskProgress) -> str:
    """The step of the last evaluation, where that is not the step beside it."""
    return "" if task.count is None or task.held_out_step in (0, task.count.done) else f" at step {task.held_out_step}"


def loss_words(task: TaskProgress) -> str:
    """The loss of the last step. A step always has one, so that a missing one was NaN or infinite."""
    return f"{task.loss:.3f}" if task.loss is not None else "not finite"


def eta_s_of(task: TaskProgress) -> float | None:
    """Seconds to the end, while the task runs and has done a part."""
    known = task.at_work and task.count is not None and 0 < task.count.done < task.count.of
    return task.eta_s if known else None


def progress_line(task: TaskProgress) -> str:
    """`step 12/400  loss 3.214  5,230 tokens/s  MFU 31.2%  ETA 1:02`."""
    return "  ".join([doing(task), *([] if task.stage else figures(task))])


def began_words(task: TaskProgress) -> str:
    """`started (train)`, `attempt 2 started on gcp-h100, 16 x h100-80gb on 2 nodes`."""
    where = f" on {place_words(task.placement)}" if task.placement is not None else ""
    kind = f" ({task.kind})" if not task.again and not where and task.kind != task.name else ""
    return f"attempt {task.attempt} started{where}" if task.again else f"started{kind}{where}"


def end_words(task: TaskProgress, now_s: float) -> str:
    """`succeeded after 12:05`, `done before, skipped`."""
    if task.state == "skipped":
        return "done before, skipped"
    seconds = task.seconds(now_s)
    why = f": {first_line(task.message)}" if task.message else ""
    return f"{task.state}{f' after {clock(seconds)}' if seconds is not None else ''}{why}"


def attempt_words(ended: EndedAttempt) -> str:
    """`attempt 1 failed after 1:40: NodeLost on n7: rank 3 stopped answering`."""
    after = f" after {clock(ended.seconds)}" if ended.seconds is not None else ""
    failure = _FAILURES.get(ended.failure, ended.failure) if ended.state == "failed" else ""
    why = f"{failure}{f' on {ended.node}' if ended.node else ''}"
    return ": ".join(part for part in (f"attempt {ended.number} {ended.state}{after}", why, first_line(ended.message)) if part)


def place_words(placement: PlacementStatus) -> str:
    """`gcp-h100, 16 x h100-80gb on 2 nodes`."""
    return f"{placement.cluster}, {gang_words(placement.gpus or placement.workers, placement.sku, len(placement.nodes))}"


def gang_words(gpus: int, sku: str, nodes: int) -> str:
    """`16 x h100-80gb on 2 nodes`. `nodes`: 0 where they are not known."""
    if not gpus:
        return "the head pod alone"
    return f"{gpus} x {sku}" + (f" on {nodes} node{'s' * (nodes != 1)}" if nodes else "")


def start_words(starts_s: float | None, now_s: float) -> str:
    """`about 2026-11-26 12:30 UTC, in 65m`. `starts_s`: seconds since 1970, as predicted; None: not known."""
    if starts_s is None:
        return "cannot be told"
    moment = f"about {datetime.fromtimestamp(starts_s, UTC):%Y-%m-%d %H:%M} UTC"
    return f"{moment}, in {age(starts_s - now_s)}" if starts_s > now_s else moment


def event_words(event: Event) -> str:
    """Words of an event that is told at once and only once; empty for the others."""
    match event:
        case Warned():
            return f"warning: {event.message}"
        case Checkpointed():
            return f"checkpoint of step {event.step} committed in {event.seconds:.1f} s ({event.bytes / 1e6:,.1f} MB)"
        case Evaluated():
            return f"held-out loss after step {event.step}: {event.words}"
        case Preflighted(all_reduce_gb_per_s=float() as measured):
            return f"all-reduce between the ranks: {measured:.2f} GB/s"
        case Placed() if any(place.node for place in event.ranks):  # on one machine there is nothing to tell
            pods = dict.fromkeys(f"{place.pod} ({place.node})" for place in event.ranks)
            return f"{len(event.ranks)} running, on {', '.join(pods)}"
        case _:
            return ""


def stage_words(stage: StageProgress) -> str:
    """`loading the model`, `tokenising 1,200/9,000 samples`, `tokenising 12/300 MB, about 1:05 left`."""
    if not stage.of:
        return stage.name
    left = f", about {clock(stage.left_s)} left" if stage.left_s is not None and stage.left_s >= 1 else ""
    return f"{stage.name} {stage.done:,.0f}/{stage.of:,.0f} {stage.unit}".rstrip() + left


def read_stage(words: str) -> StageProgress:
    """The stage whose words these are."""
    found = _STAGE.fullmatch(words)
    if found is not None:
        done, of = (float(found[part].replace(",", "") or 0) for part in ("done", "of"))
        stage = StageProgress(found["name"], done, of, found["unit"] or "", _seconds(found["left"]) if found["left"] else None)
        if stage_words(stage) == words:
            return stage
    return StageProgress(words)


def rate_words(tokens_per_s: float, rows_per_s: float | None) -> str:
    """`5,230 tokens/s`, or `410 rows/s` of tasks without tokens."""
    return f"{rate(tokens_per_s)} tokens/s" if rows_per_s is None else f"{rate(rows_per_s)} rows/s"


def clock(seconds: float) -> str:
    """`0:07`, `12:05`, `3:20:00`."""
    minutes, second = divmod(round(max(0.0, seconds)), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def _seconds(words: str) -> float:
    """The seconds of a `clock`."""
    parts = [int(part or 0) for part in words.split(":")]
    return float(sum(part * 60**place for place, part in enumerate(reversed(parts))))


def age(seconds: float) -> str:
    """`45s`, `12m`, `3h`, `2d`, as kubectl says it."""
    whole = max(0, int(seconds))
    for limit, unit, size in ((120, "s", 1), (7200, "m", 60), (172_800, "h", 3600)):
        if whole < limit:
            return f"{whole // size}{unit}"
    return f"{whole // 86_400}d"


def _rate(task: TaskProgress) -> list[str]:
    assert task.count is not None
    if task.rows_per_s is None and task.tokens_per_s is None:
        return []
    found = rate_words(task.tokens_per_s or 0.0, task.rows_per_s)
    if task.count.noun == "trial":
        return [f"best {found}"]
    return [found.replace(" tokens", " output tokens") if task.count.noun == "rows" else found]


def first_line(text: str) -> str:
    """The first line of a message. Where it announces the output of a command, the last line of that output follows it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"{lines[0]} {lines[-1]}" if len(lines) > 1 and lines[0].endswith(":") else (lines or [""])[0]
