"""The driver's side of a score task with engines (see `job`), with the interface for a pool of workers."""

from __future__ import annotations

from collections.abc import Sequence

from tuneyard.api import BadInput, RankerScoring
from tuneyard.scoring.charges import Spent, charge, charge_beside, has_price
from tuneyard.scoring.job import Figures, Measured, finish, prepare
from tuneyard.scoring.metrics import Sums
from tuneyard.scoring.partition import parts_at_once
from tuneyard.scoring.parts import Layout, committed_parts, read_sums
from tuneyard.scoring.request import ScoreRequest, ScoreResult
from tuneyard.scoring.rows import asks_of
from tuneyard.scoring.vllm_worker import VllmWorker
from tuneyard.scoring.work import Counted
from tuneyard.scoring.worker import PartWorker, WorkOrder
from tuneyard.storage import open_store


class EngineWork:
    """See `scoring.work.Work`."""

    noun = "engine"
    worker: type[PartWorker] = VllmWorker

    def __init__(self, request: ScoreRequest) -> None:
        """Raises BadInput as `prepare`, and for fields of rankers."""
        if request.task.ranking != RankerScoring():
            raise BadInput("score.ranking is for rankers, but the model is not a ranker", "leave it out, or name a folder with ranker.json")
        self.request = request
        self._job, self._new = prepare(request), list[Sums]()
        self.resumed = _counted(list(self._job.committed.values()))

    @property
    def order(self) -> WorkOrder:
        return self._job.order

    @property
    def layout(self) -> Layout:
        return self._job.order.layout

    @property
    def missing(self) -> list[int]:
        return self._job.missing

    @property
    def parts_in_hand(self) -> int:
        return parts_at_once(
            batch=self._batch,
            rows_per_part=self.layout.rows_per_part,
            requests_per_row=asks_of(self.request.task).requests,
        )

    @property
    def _batch(self) -> int:
        """Requests in flight per engine."""
        return self.request.task.engine.most_in_flight

    @property
    def counted(self) -> Counted:
        return _counted(self._new)

    def take(self, sums: Sums) -> None:
        self._new.append(sums)

    def charged(self, beside: Sequence[Spent]) -> float | None:
        """See `charges`. The parts are read anew: a worker may have committed one that the pool has not heard of."""
        if not has_price(self.request):
            return None
        store, known = open_store(self.request.output), self._job.committed
        parts = sorted(part for part in committed_parts(store) if part < self.layout.parts)
        new = [read_sums(store, part) for part in parts if part not in known]
        return charge(self.request, store, known.values(), new, beside)

    def charged_beside(self, beside: Sequence[Spent]) -> float:
        return charge_beside(self.request, beside)

    def finish(self, measured: Measured) -> ScoreResult:
        return self._finished(measured)

    def _finished(self, measured: Measured, own: Figures | None = None) -> ScoreResult:
        return finish(self._job, self._new, measured, own)

    def warnings(self, result: ScoreResult) -> list[str]:
        return result.warnings(self.request.task.generation.max_tokens)


def _counted(each: Sequence[Sums]) -> Counted:
    return Counted(sum(s.rows for s in each), sum(s.errors for s in each), sum(s.output_tokens for s in each))
