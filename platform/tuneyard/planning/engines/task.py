"""The engines of a score task on one placement: the engine of its plan, the sequences in flight, and the time of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from tuneyard.api import ScoreTask
from tuneyard.catalog import Gpu, ModelShape
from tuneyard.planning.calibration import DEFAULT, Calibration
from tuneyard.planning.engines.correction import UNCORRECTED, Correction
from tuneyard.planning.engines.dataset import DataSetTime, data_set_time
from tuneyard.planning.engines.speed import Engine, EngineSpeed, RowLengths
from tuneyard.planning.engines.work import EngineModel
from tuneyard.planning.inference import EnginePlan
from tuneyard.planning.setup import BYTES


@dataclass(frozen=True, kw_only=True)
class ScorePlan:
    """The engines of a score task with rows of certain lengths.

    `batch`: sequences in flight in an engine, as far as the cache holds them and there are rows. `busy`: engines whose batches are full at
    once, a fraction where the rows do not fill all of them.
    """

    engine: Engine
    engines: int
    lengths: RowLengths
    batch: int
    busy: float
    correction: Correction = UNCORRECTED

    @classmethod
    def of(
        cls,
        task: ScoreTask,
        shape: ModelShape,
        gpu: Gpu,
        plan: EnginePlan,
        lengths: RowLengths,
        *,
        instances: int,
        rows: int | None = None,
        calibration: Calibration = DEFAULT,
        correction: Correction = UNCORRECTED,
    ) -> ScorePlan:
        """The engines of `plan`, which `resolve_engine_plan` has resolved for the task. `rows`: of all engines; None: unknown, and many."""
        width = BYTES[plan.precision]
        engine = Engine(
            model=EngineModel(shape=shape, weight_bytes=width, cache_bytes=width, activation_bytes=width),
            gpu=gpu,
            dtype=plan.precision,
            tensor_parallel=plan.tensor_parallel,
            sharing=instances if gpu.is_cpu else 1,
            step_tokens=plan.step_tokens,
            eager=task.engine.eager or gpu.is_cpu,
            calibration=calibration,
            correction=correction.terms,
        )
        # A row whose likelihood alone is asked for has no prompt and no answer: see `RowLengths.evaluated`.
        held = int(plan.kv_tokens / max(1.0, lengths.prompt + lengths.output, lengths.evaluated))
        sequences = rows * lengths.samples if rows is not None else None
        of_engine = ceil(sequences / instances) if sequences is not None else held
        batch = max(1, min(task.engine.most_in_flight, held, of_engine))
        return cls(
            engine=engine,
            engines=instances,
            lengths=lengths,
            batch=batch,
            busy=min(instances, sequences / batch) if sequences is not None else instances,
            correction=correction,
        )

    def speeds(self) -> Sequence[EngineSpeed]:
        """The speed of one engine by batch: powers of two up to `batch`, and `batch`."""
        batches = [1 << power for power in range(self.batch.bit_length()) if 1 << power < self.batch]
        return [self.engine.speed(batch, self.lengths) for batch in (*batches, self.batch)]

    def time(self, rows: float) -> DataSetTime:
        """The time of `rows` rows."""
        return self.correction.applied(data_set_time(self.engine, self.lengths, rows=rows, engines=self.engines, batch=self.batch))
