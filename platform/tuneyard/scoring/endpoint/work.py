"""The driver's side of a score task whose rows an endpoint answers."""

from __future__ import annotations

from tuneyard.scoring.endpoint.worker import EndpointWorker
from tuneyard.scoring.engine_work import EngineWork
from tuneyard.scoring.request import ScoreResult
from tuneyard.scoring.worker import PartWorker


class EndpointWork(EngineWork):
    """See `scoring.work.Work`."""

    noun = "client"
    worker: type[PartWorker] = EndpointWorker

    @property
    def _batch(self) -> int:
        endpoint = self.request.task.engine.endpoint
        assert endpoint is not None
        return max(1, endpoint.at_once // self.request.instances)

    def warnings(self, result: ScoreResult) -> list[str]:
        """Warnings about the outputs, and about a cost that is not the whole."""
        uncounted = result.details["endpoint"]["uncounted_answers"]
        said = super().warnings(result)
        if uncounted and result.cost is not None:
            said.append(f"{uncounted} answers came without a count of tokens: the cost is higher than reported")
        return said
