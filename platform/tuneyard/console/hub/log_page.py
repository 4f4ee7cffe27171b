"""The page of logs of a hub's job, whose JobSpec is stored or gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from tuneyard.api import BadInput
from tuneyard.cluster.log_api import LogQuery
from tuneyard.console.app import Hidden
from tuneyard.console.hub.reader import Reader
from tuneyard.console.pages import page

TAIL_LINES = 2_000
SEARCHED_LINES = 10_000


@dataclass(frozen=True)
class LoggedJob:
    """`url`: of the job's page, without parameters; `numbers`: of its attempts."""

    name: str
    namespace: str
    uid: str
    url: str
    numbers: Sequence[int]
    is_stored: bool = True


def log_page(request: Request, reader: Reader, job: LoggedJob, attempt: int, source: str, find: str) -> Response:
    """The end of the log of one source, or the lines of it that hold a text."""
    numbers = sorted(set(job.numbers))
    attempt = attempt if attempt in numbers else numbers[-1] if numbers else 0
    if not attempt:
        raise BadInput("the job has no attempt yet, and so no logs", "wait until it has started")
    known = reader.hub.log(job.name, job.namespace, LogQuery(attempt, limit_bytes=0, uid=job.uid)).sources
    if source and source not in known:
        raise Hidden("this attempt has no such log", "choose one on the page of its logs")
    source = source or next((each for each in known if each != "driver"), next(iter(known), ""))
    lines = SEARCHED_LINES if find else TAIL_LINES
    query = LogQuery(attempt, (source,), tail_lines=lines, uid=job.uid)
    text = reader.hub.log(job.name, job.namespace, query).parts.get(source, "") if source else ""
    if find:
        text = "\n".join(line for line in text.split("\n") if find.lower() in line.lower())
    return page(
        request,
        "hub_logs.html",
        job=job,
        numbers=numbers,
        attempt=attempt,
        sources=known,
        chosen=source,
        find=find,
        text=text,
        lines=lines,
    )
