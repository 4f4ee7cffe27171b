"""Jobs on record, through the API of history: the list, one job whose JobSpec may be gone, and two to six side by side."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tuneyard.api import BadInput
from tuneyard.api.moments import moment_of
from tuneyard.cluster.history_api import HistoryQuery, plain
from tuneyard.console import comparison
from tuneyard.console.app import Hidden
from tuneyard.console.drawings.task_graph import Node, task_graph
from tuneyard.console.drawings.time_line import Span, time_line
from tuneyard.console.hub import rows
from tuneyard.console.hub.job_pages import NAME, yaml_of
from tuneyard.console.hub.log_page import LoggedJob, log_page
from tuneyard.console.hub.past_record import PastRecord, past_job_of, record_of
from tuneyard.console.hub.reader import Reader, Readers
from tuneyard.console.pages import page
from tuneyard.console.task_views import task_views
from tuneyard.console.upstream import upstream
from tuneyard.tracking.past import PastJob
from tuneyard.tracking.progress.words import first_line

PAGE = 50
OTHERS = 20
_TRENDS = 12
"""Runs of a name whose metrics are drawn: each is a question to the API."""


class PastPages:
    def __init__(self, readers: Readers) -> None:
        self._readers = readers

    def router(self) -> APIRouter:
        router = APIRouter(default_response_class=HTMLResponse)
        router.add_api_route("/history", self.history, methods=["GET"])
        router.add_api_route("/history/{reference}", self.past, methods=["GET"])
        router.add_api_route("/history/{reference}/logs", self.logs, methods=["GET"])
        router.add_api_route("/compare", self.compare, methods=["GET"])
        return router

    def history(self, request: Request, name: str = "", status: str = "", team: str = "", user: str = "", until: str = "") -> Response:
        texts: dict[str, Any] = {"name": name.strip(), "status": status, "team": team.strip(), "user": user.strip()}
        if any(len(text) > 253 for text in texts.values()):
            raise BadInput("a filter is too long", "shorten it")
        query = HistoryQuery(**texts, until=_until(until))
        jobs = [past_job_of(row) for row in self._readers.of(request).past_jobs(query, PAGE + 1)]
        older = plain(jobs[PAGE - 1].started_at) if len(jobs) > PAGE else ""
        wanted = {**texts, "until": until if query.until is not None else ""}
        phases = (*rows.WAITING, *rows.AT_WORK, *rows.ENDED)
        return page(request, "hub_history.html", jobs=jobs[:PAGE], older=older, wanted=wanted, phases=phases, now=datetime.now(UTC))

    def past(self, request: Request, reference: str, namespace: str = "") -> Response:
        reader = self._readers.of(request)
        record = _record(reader, namespace, reference)
        now = datetime.now(UTC)
        same = HistoryQuery(name=record.run.name)
        listed = map(past_job_of, reader.hub.past.list(record.run.namespace, same, OTHERS))
        others = [each for each in listed if each.id != record.run.id]
        before = [each for each in others if each.started_at < record.run.started_at]
        stored = any(row.name == record.run.name and row.namespace == record.run.namespace for row in reader.listed().rows)
        spec = yaml_of(record.spec) if record.spec else ""
        trends = comparison.trends_of(_trend(reader, [*before[: _TRENDS - 1][::-1], record.run]))
        values: dict[str, Any] = {
            "others": [*before, *(each for each in others if each not in before)],
            "stored": stored,
            "logged": bool(record.attempts and record.run.output),
            "spec": spec,
            "trends": trends,
        }
        return page(request, "hub_past.html", now=now, run=record.run, **values, **_view(record, now))

    def logs(self, request: Request, reference: str, namespace: str = "", attempt: int = 0, source: str = "", find: str = "") -> Response:
        """Logs of a job on record. The API of logs asks for the right to logs of its name, as for a job that is stored."""
        reader = self._readers.of(request)
        record = _record(reader, namespace, reference)
        numbers = [each["number"] for each in record.attempts]
        job = LoggedJob(record.run.name, record.run.namespace, record.run.uid, f"/history/{record.run.id}", numbers, is_stored=False)
        return log_page(request, reader, job, attempt, source, find)

    def compare(self, request: Request) -> Response:
        """Jobs on record side by side: `run=NAMESPACE/ID`, twice or more."""
        wanted = list(dict.fromkeys(request.query_params.getlist("run")))
        if not comparison.FEWEST <= len(wanted) <= comparison.MOST:
            least, most = comparison.FEWEST, comparison.MOST
            raise BadInput(f"{len(wanted)} runs are chosen, and a comparison has {least} to {most}", "mark them in the list of history")
        reader = self._readers.of(request)
        records = [_record(reader, *each.partition("/")[::2]) for each in wanted]
        return page(request, "compare.html", sides=[], url_of=_url, now=datetime.now(UTC), **comparison.side_by_side(records))


def _until(text: str) -> datetime | None:
    """The moment of the parameter `until`; None for an empty one. Raises BadInput, which names it."""
    try:
        return moment_of(text) if text else None
    except ValueError as error:
        raise BadInput(f"until: {error}", "correct the address, or start at the list of history") from error


def _record(reader: Reader, namespace: str, reference: str) -> PastRecord:
    """A job on record. Raises Hidden for one that does not exist, and in the same words for one that this reader may not see."""
    where = namespace or reader.hub.address.namespace
    found = reader.past(where, reference) if NAME.fullmatch(reference) and NAME.fullmatch(where) else None
    if found is None:
        raise Hidden("history has no such job, or you may not see it", "the list of history shows those that you may see")
    return record_of(found)


def _url(run: PastJob) -> str:
    return f"/history/{run.id}?namespace={run.namespace}"


def _trend(reader: Reader, runs: list[PastJob]) -> list[Mapping[str, Any]]:
    """Metrics of score tasks of several jobs, the oldest first."""
    found: list[Mapping[str, Any]] = []
    for run in runs:
        row = reader.past(run.namespace, run.id)
        tasks = record_of(row).tasks if row is not None else {}
        several = sum(1 for task in tasks.values() if task.get("metrics")) > 1
        metrics = {
            f"{name} {key}" if several else key: each for name, task in tasks.items() for key, each in task.get("metrics", {}).items()
        }
        found.append({"metrics": metrics})
    return found if any(each["metrics"] for each in found) else []


def _view(record: PastRecord, now: datetime) -> dict[str, Any]:
    needs = upstream(record.spec)
    nodes = [Node(name, str(task["kind"]), str(task["status"]), needs.get(name, ())) for name, task in record.tasks.items()]
    spans = [
        Span(
            title=row["task"] if row["number"] == 1 else f"{row['task']}, attempt {row['number']}",
            note=_note(row),
            state=row["status"],
            started_at=row["started_at"],
            ended_at=row["ended_at"] or record.run.ended_at,
            waited_from=row["placed_at"],
        )
        for row in record.attempts
    ]
    tasks = [{**view, "progress": None} for view in task_views(record.tasks).values()]
    return {"graph": task_graph(nodes), "time_line": time_line(spans, now), "tasks": tasks}


def _note(row: Mapping[str, Any]) -> str:
    where = ", ".join(
        part for part in (str(row.get("cluster") or ""), f"{row['workers']} x {row['sku']}" if row.get("sku") else "") if part
    )
    return ": ".join(part for part in (row.get("failure") or "", first_line(str(row.get("message") or ""))) if part) or where
