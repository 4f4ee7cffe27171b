"""The interface of a score task for a pool of workers, for language models in engines, endpoints and rankers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tuneyard.scoring.job import Measured
    from tuneyard.scoring.parts import Layout
    from tuneyard.scoring.request import ScoreRequest


@dataclass(frozen=True)
class Counted:
    """Counts of committed rows."""

    rows: int = 0
    errors: int = 0
    output_tokens: int = 0

    def plus(self, other: Counted) -> Counted:
        return Counted(self.rows + other.rows, self.errors + other.errors, self.output_tokens + other.output_tokens)


class Work(Protocol):
    """One attempt at a score task, from its opened data to its result."""

    @property
    def noun(self) -> str:
        """The name of a worker for people."""

    @property
    def request(self) -> ScoreRequest: ...

    @property
    def layout(self) -> Layout: ...

    @property
    def missing(self) -> Sequence[int]:
        """Parts that are not committed yet."""

    @property
    def parts_in_hand(self) -> int:
        """Maximum number of parts that a worker holds."""

    @property
    def worker(self) -> type:
        """The class of workers. It is constructed with `order`, and has load, score, open_work and close (see `PartWorker`)."""

    @property
    def order(self) -> Any:
        """The input of every worker; can be pickled."""

    @property
    def resumed(self) -> Counted:
        """Rows committed by earlier attempts."""

    @property
    def counted(self) -> Counted:
        """Rows committed by this attempt."""

    def take(self, sums: Any) -> None:
        """Record a committed part. `sums`: the sums from its worker."""

    def charged(self, beside: Sequence[Any]) -> float | None:
        """What endpoints charge for this attempt; None: nothing is charged, or no price is known. Call it once, when the workers have
        ended. `beside`: what their `close` has returned. Raises StorageError."""

    def charged_beside(self, beside: Sequence[Any]) -> float:
        """The part of `charged` that is known where that raises: of tokens that are in no part."""

    def finish(self, measured: Measured) -> Any:
        """The result, a dataclass. Raises JobFailed if more rows have errors than the task tolerates."""

    def warnings(self, result: Any) -> list[str]:
        """Warnings about the result, one sentence each."""


def work_of(request: ScoreRequest) -> Work:
    """Open the data of a task. Raises BadInput as `prepare` and `RankerWork` do."""
    from tuneyard.ranking import holds_ranker

    if request.task.engine.endpoint is not None:
        from tuneyard.scoring.endpoint.work import EndpointWork  # late: it loads an HTTP client

        return EndpointWork(request)
    if holds_ranker(request.model_uri):
        from tuneyard.scoring.ranker.work import RankerWork  # late: it loads libraries that only rankers need

        return RankerWork(request)
    if request.task.data.lm_eval is not None:
        from tuneyard.scoring.harness.work import HarnessWork  # late: it loads libraries that only language models need

        return HarnessWork(request)
    from tuneyard.scoring.engine_work import EngineWork  # late: it loads libraries that only language models need

    return EngineWork(request)
