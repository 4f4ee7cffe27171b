"""Texts and moments as the pages show them. Pure, but for the time zone of this machine."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from markupsafe import Markup, escape

from tuneyard.data.visible import visible
from tuneyard.tracking.formats import MISSING

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def printed(value: Any) -> Any:
    """A value of a template: controls and characters that change the writing direction become `\\u202e`. Jinja escapes afterwards."""
    if isinstance(value, Markup):
        return Markup(visible(value))
    return visible(value) if isinstance(value, str) else value


def name(text: object) -> Markup:
    """A name that people chose, isolated, so that its writing direction does not reach its neighbours."""
    return Markup(f"<bdi>{escape(visible(str(text)))}</bdi>")


def when(moment: datetime | None, now: datetime) -> Markup:
    """`08:02` today, `Nov 25, 16:39` this year, else `2025-11-25`, in the time zone of this machine; the exact moment on hover. A time that
    clocks show twice has its offset: `02:30+02:00`."""
    if moment is None:
        return Markup(MISSING)
    local, today = moment.astimezone(), now.astimezone()
    if local.date() == today.date():
        text = f"{local:%H:%M}{_offset(local)}"
    elif local.year == today.year:
        text = f"{_MONTHS[local.month - 1]} {local.day}, {local:%H:%M}{_offset(local)}"
    else:
        text = f"{local:%Y-%m-%d}"
    exact = f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return Markup(f'<time datetime="{moment.astimezone(UTC).isoformat()}" title="{exact}">{text}</time>')


def _offset(local: datetime) -> str:
    """The offset of a local time that this machine's clocks show twice, as when summer time ends; empty for all others."""
    shown = local.replace(tzinfo=None)
    both = {shown.replace(fold=fold).astimezone().utcoffset() for fold in (0, 1)}
    return local.isoformat()[-len("+00:00") :] if len(both) > 1 else ""


def hours(amount: float | None) -> str:
    """GPU-hours. A dash: none."""
    if not amount:
        return MISSING
    return f"{amount:,.1f}" if amount >= 0.05 else "< 0.1"


def job_url(job: Any) -> str:
    """The page of one run: by the name of its job where a path can hold it, and always by the id of the run."""
    plain = bool(_PLAIN_NAME.fullmatch(str(job.name)))
    return f"/jobs/{job.name if plain else job.id}?{urlencode({'run': job.id})}"


def query(**values: Any) -> str:
    """A query string without empty values; a list becomes a repeated parameter."""
    return urlencode({name: value for name, value in values.items() if value not in (None, "", [], False)}, doseq=True)


def path(text: object) -> str:
    """One part of a path."""
    return quote(str(text), safe="")
