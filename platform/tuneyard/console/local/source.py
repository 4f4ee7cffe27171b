"""The pages of the run history of this machine."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tuneyard.api import BadInput
from tuneyard.console import comparison, words
from tuneyard.console.app import Hidden
from tuneyard.console.drawings.days import day_columns
from tuneyard.console.local import log_pages, queries, score_rows
from tuneyard.console.local.run_record import RunRecord, read_run, spec_text
from tuneyard.console.local.run_view import run_view
from tuneyard.console.pages import page, render
from tuneyard.console.streams import Look, Streams
from tuneyard.runtime.liveness import is_orphaned
from tuneyard.tracking.history import History
from tuneyard.tracking.past import MOST_COUNTED, JobFilter, PastJob

DAYS = 14
PAGE = 50
_AT_WORK = 20
_FAILED = 10
_RECENT = 10
_NAMESAKES = 20
_STATUSES = ("running", "succeeded", "failed", "stopped")
_LONGEST_FILTER = 253


class LocalHistory:
    """Run history in one database, and the output folders on this machine. `open` raises what `History.open` raises."""

    navigation = (("/", "Overview"), ("/jobs", "Jobs"))

    def __init__(self, history: History) -> None:
        self._history = history
        self._streams = Streams()

    @classmethod
    def open(cls, url: str | None = None) -> LocalHistory:
        return cls(History.open(url))

    @property
    def label(self) -> str:
        return self._history.shown_url

    def close(self) -> None:
        self._history.close()

    def router(self) -> APIRouter:
        router = APIRouter(default_response_class=HTMLResponse)
        router.add_api_route("/", self.overview, methods=["GET"])
        router.add_api_route("/jobs", self.jobs, methods=["GET"])
        router.add_api_route("/jobs/{name}", self.job, methods=["GET"])
        router.add_api_route("/jobs/{name}/live", self.live, methods=["GET"])
        router.add_api_route("/jobs/{name}/logs", self.logs, methods=["GET"])
        router.add_api_route("/compare", self.compare, methods=["GET"])
        router.add_api_route("/score", self.score, methods=["GET"])
        return router

    # --- overview and list

    def overview(self, request: Request) -> Response:
        now = datetime.now(UTC)
        days = queries.ended_by_day(self._history, now, DAYS)
        at_work = self._history.page(JobFilter(status="running"), _AT_WORK).jobs
        orphaned = {run.id for run in at_work if is_orphaned(run.status, run.output)}
        return page(
            request,
            "overview.html",
            now=now,
            today=days[-1][1],
            drawing=day_columns(days),
            running=[run for run in at_work if run.id not in orphaned],
            orphaned=[run for run in at_work if run.id in orphaned],
            failed=self._history.last_ended(JobFilter(status="failed", ended_since=days[-1][0]), _FAILED),
            recent=self._history.page(JobFilter(), _RECENT).jobs,
            hours=self._history.usage(now - timedelta(days=7), now),
        )

    def jobs(self, request: Request, q: str = "", status: str = "", team: str = "", imported: bool = False, after: str = "") -> Response:
        text = q.strip()[:_LONGEST_FILTER]
        wanted = JobFilter(text=text or None, status=status[:32] or None, team=team[:63] or None, imported=imported)
        found = self._history.page(wanted, PAGE, after)
        return page(
            request,
            "jobs.html",
            wanted=wanted,
            filtered=wanted != JobFilter(),
            found=found,
            count=self._history.count(wanted),
            most=MOST_COUNTED,
            first=not after,
            statuses=_STATUSES,
            teams=queries.teams_of(self._history),
            orphaned={run.id for run in found.jobs if is_orphaned(run.status, run.output)},
        )

    # --- one run

    def job(self, request: Request, name: str, run: str = "") -> Response:
        record = self._record(name, run)
        now = datetime.now(UTC)
        namesakes = self._history.page(JobFilter(name=record.run.name), _NAMESAKES).jobs
        others = [each for each in namesakes if each.id != record.run.id]
        sides = score_rows.sides_of(record)
        view = run_view(record, now)
        logs = log_pages.labels_of(record)
        return page(request, "job.html", now=now, others=others, sides=sides, logs=logs, spec=spec_text(record.spec), **view)

    async def live(self, request: Request, name: str, run: str = "") -> Response:
        record = await run_in_threadpool(self._record, name, run)
        return self._streams.follow(request, lambda seen: self._look(record.run, seen))

    def _look(self, run: PastJob, seen: Any) -> Look:
        change = (queries.last_change(self._history, run.id), is_orphaned(run.status, run.output))
        if change == seen:
            return Look(change, "", False)
        record = read_run(self._history, run.id)
        if record is None:
            return Look(change, "", True)
        ended = record.run.status != "running" or record.orphaned
        return Look(change, render("job_live.html", **run_view(record, datetime.now(UTC))), ended)

    def logs(self, request: Request, name: str, run: str = "", log: str = "", at: int | None = None, find: str = "") -> Response:
        return log_pages.log_page(request, self._record(name, run), log, at, find)

    # --- several runs

    def compare(self, request: Request) -> Response:
        wanted = list(dict.fromkeys(request.query_params.getlist("run")))
        if len(wanted) > comparison.MOST:
            raise BadInput(f"{len(wanted)} runs are chosen, and a comparison holds {comparison.MOST}", "choose fewer in the list of jobs")
        records = [self._record(reference) for reference in wanted]
        records = list({record.run.id: record for record in records}.values())
        if len(records) < comparison.FEWEST:
            raise BadInput("a comparison needs two runs", "mark two to six in the list of jobs, then choose Compare")
        shown = comparison.side_by_side(records)
        sides = [
            (column.letter, side) for column, each in zip(shown["columns"], records, strict=True) for side in score_rows.sides_of(each)
        ]
        return page(request, "compare.html", sides=sides, url_of=words.job_url, **shown)

    def score(self, request: Request, start: int = 0, row: int | None = None) -> Response:
        """Rows of one score task, or of two side by side: `side=RUN/TASK`, once or twice. `row`: the page that holds this row."""
        sides = [self._side(each) for each in request.query_params.getlist("side")[:2]]
        if not sides:
            raise BadInput("no score task is chosen", "open the page of a job, then its rows")
        count = max(map(score_rows.count_of, sides))
        start = start if row is None else score_rows.place_of(sides[0], row)
        start = min(max(0, start), max(0, count - 1)) // score_rows.PAGE * score_rows.PAGE
        rows = score_rows.rows_at(sides, start)
        columns = comparison.columns_of([side.alone() for side in sides])
        return page(
            request,
            "score.html",
            sides=sides,
            references=[f"{side.record.run.id}/{side.task}" for side in sides],
            others=score_rows.sides_of(sides[0].record),
            rows=rows,
            start=start,
            size=score_rows.PAGE,
            count=count,
            trends=comparison.trends_of(self._trend(sides[0]), sides[0].figures) if len(sides) == 1 else [],
            same=len(sides) < 2 or score_rows.same_data(sides[0], sides[1], rows),
            figures=comparison.figures_of(columns, paired=score_rows.paired_figures(sides[0], sides[1])) if len(sides) == 2 else [],
        )

    def _trend(self, side: score_rows.Side) -> list[dict[str, Any]]:
        return queries.scores_of(self._history, side.record.run.name, side.task)

    def _side(self, reference: str) -> score_rows.Side:
        run, _, task = reference.partition("/")
        record = self._record(run)
        if task not in {side.task for side in score_rows.sides_of(record)}:
            raise Hidden(f"run {record.run.name} has no score task of that name", "open the page of the job, then its rows")
        return score_rows.Side(record, task)

    def _record(self, name: str, run: str = "") -> RunRecord:
        """A run by its id, or else the newest one of a job. Raises Hidden."""
        record = read_run(self._history, run or name)
        if record is None or (run and name not in (record.run.name, record.run.id)):
            raise Hidden("there is no such job", "the list of jobs has a search")
        return record
