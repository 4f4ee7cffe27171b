"""Jobs of the hub as a table, for people and for programs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from tuneyard.cli.jobs.figures import bar, done_words, progress_of, seconds_since
from tuneyard.cluster import HubJob
from tuneyard.tracking import TaskProgress
from tuneyard.tracking.formats import percent
from tuneyard.tracking.progress.words import age, clock, eta_s_of, first_line, loss_words

COLUMNS = ("name", "phase", "cluster", "sku", "gpus", "progress", "loss", "MFU", "ETA", "age", "message")
_LONGEST_MESSAGE = 80


def row(job: HubJob, now: datetime, *, namespace: bool = False, bars: bool = False) -> dict[str, Any]:
    """One job under COLUMNS; `namespace`: names in full; `bars`: draw its progress as a bar."""
    status, progress = job.status, progress_of(job)
    task = progress.tasks.get(progress.newest) or TaskProgress(name="")
    eta_s, steps = eta_s_of(task), done_words(task)
    drawn = bars and task.fraction is not None and not job.phase.final
    return {
        "name": job.label if namespace else job.name,
        "phase": job.state,
        "cluster": status.placement.cluster if status.placement else None,
        "sku": status.placement.sku if status.placement else None,
        "gpus": status.placement.gpus if status.placement else None,
        "progress": (f"{bar(task.fraction or 0.0)} {steps}" if drawn else steps) or None,
        "loss": loss_words(task) if task.count is not None and task.count.noun == "step" else None,
        "MFU": percent(task.mfu) if task.mfu is not None else None,
        "ETA": clock(eta_s) if eta_s is not None else None,
        "age": age(seconds_since(job.created_at, now)),
        "message": _shortened(status.message),
    }


def rows(jobs: Sequence[HubJob], now: datetime, *, namespace: bool = False, bars: bool = False) -> list[dict[str, Any]]:
    return [row(job, now, namespace=namespace, bars=bars) for job in jobs]


def facts(job: HubJob, now: datetime) -> dict[str, Any]:
    """One job for programs: the whole status, with unrounded numbers."""
    return {
        "name": job.name,
        "namespace": job.namespace,
        "uid": job.uid,
        "created_at": job.created_at.isoformat(),
        "age_s": round(seconds_since(job.created_at, now)),
        "deleting": job.deleting,
        "cancelled": job.cancelled,
        **job.status.model_dump(mode="json"),
        "output": job.output,
    }


def summary(job: HubJob, now: datetime) -> dict[str, Any]:
    """The table's row for programs."""
    status, steps = job.status, job.status.progress
    return {
        "name": job.name,
        "namespace": job.namespace,
        "phase": str(job.phase),
        "cancelled": job.cancelled,
        "cluster": status.placement.cluster if status.placement else None,
        "sku": status.placement.sku if status.placement else None,
        "gpus": status.placement.gpus if status.placement else None,
        "step": steps.step,
        "of": steps.of,
        "loss": steps.loss,
        "tokens_per_s": steps.tokens_per_s,
        "rows_per_s": steps.rows_per_s,
        "mfu": steps.mfu,
        "eta_s": steps.eta_s,
        "age_s": round(seconds_since(job.created_at, now)),
        "message": status.message,
    }


def _shortened(message: str) -> str:
    first = first_line(message)
    return first if len(first) <= _LONGEST_MESSAGE else f"{first[: _LONGEST_MESSAGE - 1]}…"
