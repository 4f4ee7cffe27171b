"""What a pool of workers needs to know of a score task, whatever scores it: a language model in engines, or a ranker."""

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
    """Of some committed rows."""

    rows: int = 0
    errors: int = 0
    output_tokens: int = 0

    def plus(self, other: Counted) -> Counted:
        return Counted(self.rows + other.rows, self.errors + other.errors, self.output_tokens + other.output_tokens)


class Work(Protocol):
    """One attempt at a score task, from its opened data to its result."""

    @property
    def noun(self) -> str:
        """What people call a worker."""

    @property
    def request(self) -> ScoreRequest: ...

    @property
    def layout(self) -> Layout: ...

    @property
    def missing(self) -> Sequence[int]:
        """Parts that no earlier attempt has committed."""

    @property
    def parts_in_hand(self) -> int:
        """Parts that a worker holds at once."""

    @property
    def worker(self) -> type:
        """Takes the `order`, and has load, score, open_work and close (see `PartWorker`)."""

    @property
    def order(self) -> Any:
        """What every worker gets. Crosses processes by pickle."""

    @property
    def resumed(self) -> Counted:
        """Rows that earlier attempts have committed."""

    @property
    def counted(self) -> Counted:
        """Rows that this attempt has committed."""

    def take(self, sums: Any) -> None:
        """A part is committed; `sums` is what its worker says of it."""

    def finish(self, measured: Measured) -> Any:
        """The result, a dataclass. Raises JobFailed if more rows have errors than the task tolerates."""

    def warnings(self, result: Any) -> list[str]:
        """What a person should know though nothing failed, one sentence each."""


def work_of(request: ScoreRequest) -> Work:
    """Open the data of a task. Raises BadInput as `prepare` and `RankerWork` do."""
    from tuneyard.ranking import holds_ranker

    if holds_ranker(request.model_uri):
        from tuneyard.scoring.ranker.work import RankerWork  # late: it loads what only rankers need

        return RankerWork(request)
    from tuneyard.scoring.engine_work import EngineWork  # late: it loads what only language models need

    return EngineWork(request)
