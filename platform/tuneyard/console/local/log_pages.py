"""The page of a log: the logs of the run, a window of one of them, and a search in it."""

from __future__ import annotations

import re

from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response

from tuneyard.api import StorageError
from tuneyard.console.app import Hidden
from tuneyard.console.local import log_files
from tuneyard.console.local.log_files import LogFile, Window
from tuneyard.console.local.run_record import RunRecord
from tuneyard.console.pages import page
from tuneyard.data.visible import visible

LONGEST_SEARCH = 200
_LARGEST_OFFSET = 1 << 62


def labels_of(record: RunRecord) -> list[str]:
    """Labels of the logs in the run's folder; empty where the folder is not on this machine."""
    return [log.label for log in _logs(record)]


def log_page(request: Request, record: RunRecord, label: str, at: int | None, find: str) -> Response:
    """`at`: the byte to show; None: the end. `find`: the text to look for from there on."""
    logs = _logs(record)
    chosen = next((log for log in logs if log.label == label), None) if label else next(iter(logs), None)
    if label and chosen is None:
        raise Hidden("this run has no such log", "choose one on the page of its logs")
    at = None if at is None else min(max(0, at), _LARGEST_OFFSET)
    find = find[:LONGEST_SEARCH]
    try:
        found = log_files.search(chosen, find, at or 0) if chosen and find else None
        place = found.at if found is not None and found.at is not None else at
        shown = log_files.window(chosen, place) if chosen else None
        earlier = log_files.before(chosen, shown.start) if chosen and shown and shown.start else None
    except OSError as error:
        raise StorageError(f"the log cannot be read: {error.strerror}", "reload the page") from error
    return page(
        request,
        "logs.html",
        run=record.run,
        logs=logs,
        chosen=chosen,
        find=find,
        found=found,
        shown=shown,
        text=_text(shown, find) if shown else "",
        earlier=earlier,
        follows=bool(shown and shown.end >= shown.size and at is None and not find and record.run.status == "running"),
    )


def _logs(record: RunRecord) -> list[LogFile]:
    if record.folder is None:
        return []
    try:
        return log_files.logs_of(record.folder)
    except OSError as error:
        raise StorageError(f"the logs cannot be listed: {error.strerror}", "check the output folder of the run") from error


def _text(shown: Window, find: str) -> Markup:
    """The lines with each match marked."""
    text = "\n".join(visible(line) for line in shown.lines)
    if not find:
        return escape(text)
    parts = re.split(f"({re.escape(find)})", text, flags=re.IGNORECASE)
    return Markup("").join(Markup("<mark>{}</mark>").format(part) if index % 2 else escape(part) for index, part in enumerate(parts))
