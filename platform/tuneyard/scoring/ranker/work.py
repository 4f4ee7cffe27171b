"""The driver's side of a score task with a ranker: opens the table, cuts it into parts, and computes figures from the sums of all parts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tuneyard.ranking import read_config
from tuneyard.scoring.job import RESULT, Measured
from tuneyard.scoring.parts import FOLDER, Layout, committed_parts, read_footer
from tuneyard.scoring.plan import agree, check_errors, clear, identity, rows_per_part
from tuneyard.scoring.ranker.sums import EvaluationSettings, RankedSums
from tuneyard.scoring.ranker.table import RankedTable
from tuneyard.scoring.ranker.worker import RankerOrder, RankerWorker
from tuneyard.scoring.request import ScoreRequest
from tuneyard.scoring.work import Counted
from tuneyard.storage import join, open_store
from tuneyard.tracking.report import json_safe

_ROWS_PER_PART = 65_536
_IN_HAND = 3
"""Parts per worker: one that is read, one that is scored, one that is written."""


@dataclass(frozen=True, kw_only=True)
class RankedResult:
    """The result. `metrics`: figures of all rows that have the label; `judged`: label -> all, slices, windows."""

    rows: int
    errors: int
    metrics: dict[str, float]
    output: str
    """URI of the folder of scored rows, which holds only Parquet parts: `pandas.read_parquet(output)`."""
    rows_per_s: float
    """Rate from the first ready ranker to the last commit."""
    wall_s: float
    status: str = "succeeded"
    """succeeded | stopped (on request; committed parts stay, and the figures cover them)"""
    rows_resumed: int = 0
    """Rows committed by earlier attempts."""
    judged: dict[str, dict[str, Any]] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)


class RankerWork:
    """See `scoring.work.Work`."""

    noun = "ranker"
    worker = RankerWorker
    parts_in_hand = _IN_HAND

    def __init__(self, request: ScoreRequest) -> None:
        """Raises BadInput as `RankedTable.open`, and for parts in the output that were made with other settings."""
        self.request, self._store = request, open_store(request.output)
        table = RankedTable.open(request.task, read_config(request.model_uri))
        if not request.resume:
            clear(self._store)
        layout = Layout.choose(table.rows, rows_per_part(request, _ROWS_PER_PART), request.instances)
        values = table.frequent_values(request.task.ranking.slice_values) if table.labels else {}
        self.layout, chosen = agree(self._store, layout, _settings(request, table), {"slices": values})
        self.order = RankerOrder(request, table, self.layout, EvaluationSettings.of(request.task.ranking, chosen["slices"]))
        self.remarks = table.notes
        self._total, self._ours = RankedSums(), Counted()
        committed = sorted(part for part in committed_parts(self._store) if part < self.layout.parts)
        for part in committed:
            self._total.add(read_footer(self._store, part, RankedSums.from_dict))
        self.resumed = Counted(self._total.rows, self._total.errors)
        self.missing = [part for part in range(self.layout.parts) if part not in set(committed)]

    @property
    def counted(self) -> Counted:
        """Committed rows of this attempt."""
        return self._ours

    def take(self, sums: Mapping[str, Any]) -> None:
        """Add the sums of a committed part."""
        part = RankedSums.from_dict(sums)
        self._total.add(part)
        self._ours = self._ours.plus(Counted(part.rows, part.errors))

    def charged(self, beside: Sequence[Any]) -> float | None:  # noqa: ARG002 - as of endpoints
        return None

    def charged_beside(self, beside: Sequence[Any]) -> float:  # noqa: ARG002 - as of endpoints
        return 0.0

    def finish(self, measured: Measured) -> RankedResult:
        """Write metrics.json. Raises JobFailed if more rows have errors than the task tolerates."""
        request, total = self.request, self._total
        result = RankedResult(
            rows=total.rows,
            errors=total.errors,
            metrics=total.metrics(self.order.table.config.tasks),
            output=join(request.output, FOLDER),
            rows_per_s=self._ours.rows / measured.generation_s if measured.generation_s else 0.0,
            wall_s=measured.wall_s,
            status="stopped" if measured.stopped else "succeeded",
            rows_resumed=self.resumed.rows,
            judged=total.judged(request.task.ranking.base_rate),
            details={
                "load_s": measured.load_s,
                "scoring_s": measured.generation_s,
                "ranker_deaths": measured.deaths,
                "parts": self.layout.parts,
                "rows_per_part": self.layout.rows_per_part,
                "instances": request.instances,
                "errors": dict(total.reasons.most_common(5)),
                "notes": list(self.remarks),
            },
        )
        self._store.put(RESULT, json.dumps(json_safe(asdict(result)), indent=2, allow_nan=False).encode())
        if not measured.stopped:
            check_errors(request, total.errors, total.rows, total.reasons)
        return result

    def warnings(self, result: RankedResult) -> list[str]:  # noqa: ARG002 - as of language models
        """Warnings about the output, one sentence each."""
        return list(self.remarks)


def _settings(request: ScoreRequest, table: RankedTable) -> dict[str, Any]:
    """All settings that change the content of a part, by their names in the JobSpec."""
    task = request.task
    return {
        "kind": "ranker",
        "rows": table.rows,
        "model": {"uri": request.model_uri, "files": identity(request.model_uri)},
        "data": {
            **task.data.model_dump(mode="json", by_alias=True, include={"keep", "limit"}),
            "files": hashlib.sha256("\n".join(file.file.identity() for file in table.table.files).encode()).hexdigest()[:16],
        },
        "ranking": task.ranking.model_dump(mode="json", by_alias=True, include={"slices", "slice_values", "windows"}),
    }
