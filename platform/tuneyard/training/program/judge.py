"""What an evaluation of a program finds beside the loss: figures of its predictions, and samples of them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tuneyard.api import BadInput
from tuneyard.api.evaluation import LOSS, Evaluation
from tuneyard.storage import Store
from tuneyard.training.distributed import World
from tuneyard.training.evaluation_rows import make_rows
from tuneyard.training.first_rank import made_on_first, write_on_first
from tuneyard.training.program.loading import Loaded
from tuneyard.training.program.measuring import HeldOutRows, nearest, own_figures, table_figures
from tuneyard.training.program.predictions import predict_rows, spread, write_samples

if TYPE_CHECKING:
    from tuneyard.training.program.trainer import ProgramTrainer


class Judge:
    """Predicts held-out rows, on all ranks, and measures them on the first one. Its methods are collective.

    Figures that are not finite are left out, with a warning: a metric may be undefined for some predictions.
    """

    def __init__(self, loaded: Loaded, evaluation: Evaluation, world: World, store: Store, warn: Callable[[str], None]) -> None:
        self._loaded = loaded
        self._evaluation = evaluation
        self._world = world
        self._store = store
        self._warn = warn
        self._names: set[str] = set()
        self._warned: set[str] = set()

    @property
    def measures(self) -> bool:
        """Whether there are figures beside the loss."""
        return bool(self._evaluation.metrics) or self._loaded.measures

    def try_out(self, trainer: ProgramTrainer) -> None:
        """Predict and measure a few rows before the first step: most errors are found now, and not after some hours. The program's own
        metrics may fail for so few rows, which is a warning.
        """
        asked = self.measures or self._evaluation.samples
        if asked:
            make_rows(trainer.eval_dataset, self._world)
        rows = len(trainer.eval_dataset) if asked else 0
        if not rows:
            self._refuse_unknown_best(set())
            return
        numbers = range(min(rows, trainer.args.per_device_eval_batch_size * self._world.mesh.data))
        lines = predict_rows(trainer, numbers)
        whole = len(numbers) == rows
        said, figures = made_on_first(self._world, lambda: self._tried(trainer, lines, numbers, whole=whole))
        if said:
            self._warn(said)
        else:
            self._refuse_unknown_best(set(figures))
        self._names = set(figures)

    def figures(self, trainer: ProgramTrainer) -> dict[str, float]:
        """The figures of all held-out rows, the same on every rank; writes the samples. Raises BadInput if no figure has the name in
        evaluation.best.
        """
        rows, samples = len(trainer.eval_dataset), self._evaluation.samples
        chosen = spread(rows, samples) if samples else []
        numbers = range(rows) if self.measures else chosen
        if not len(numbers):
            return {}
        lines = predict_rows(trainer, numbers)
        if samples:
            shown = [lines[number] for number in chosen] if self.measures else lines
            write_on_first(self._world, lambda: write_samples(self._store, trainer.state.global_step, shown), what="the samples")
        if not self.measures:
            return {}
        found: dict[str, float] = made_on_first(self._world, lambda: self._measured(trainer, lines, numbers))
        if not self._names:
            self._refuse_unknown_best(set(found))
        self._compare_names(found)
        return self._finite(found, trainer.state.global_step)

    def _tried(self, trainer: ProgramTrainer, lines: Sequence[str], numbers: Sequence[int], *, whole: bool) -> tuple[str, dict[str, float]]:
        predictions = [json.loads(line) for line in lines]
        figures = table_figures(self._evaluation.metrics, predictions, self._loaded.name)
        try:
            return "", {**figures, **self._own(trainer, predictions, numbers, figures)}
        except BadInput as error:
            if whole or error.__cause__ is None:  # it returned something wrong, or it has seen all rows
                raise
            return f"{error.cause}; this was a trial on {len(lines)} of the held-out rows, before the first step", {}

    def _measured(self, trainer: ProgramTrainer, lines: Sequence[str], numbers: Sequence[int]) -> dict[str, float]:
        predictions = [json.loads(line) for line in lines]
        figures = table_figures(self._evaluation.metrics, predictions, self._loaded.name)
        return {**figures, **self._own(trainer, predictions, numbers, figures)}

    def _own(
        self, trainer: ProgramTrainer, predictions: Sequence[Any], numbers: Sequence[int], others: dict[str, float]
    ) -> dict[str, float]:
        found = own_figures(self._loaded, predictions, HeldOutRows(trainer.eval_dataset, numbers))
        if both := sorted({*found} & {*others}):
            raise BadInput(
                f"metrics of {self._loaded.name} returned {', '.join(both)}, which evaluation.metrics names too",
                "take another name, or leave it out of evaluation.metrics",
            )
        return found

    def _refuse_unknown_best(self, names: set[str]) -> None:
        goal = self._evaluation.goal
        if goal is not None and goal.metric not in {LOSS, *names}:
            known = [LOSS, *sorted(names)]
            raise BadInput(
                f"evaluation.best.metric is {goal.metric}, and an evaluation of {self._loaded.name} has {', '.join(known)}",
                nearest(goal.metric, known),
            )

    def _compare_names(self, found: dict[str, float]) -> None:
        names = set(found)
        if self._names and names != self._names and "names" not in self._warned:
            self._warned.add("names")
            changed = ", ".join(sorted(names ^ self._names))
            self._warn(
                f"metrics of {self._loaded.name} does not return the same names each time: {changed}; "
                "return each name, with nan where it is undefined"
            )
        self._names = self._names or names

    def _finite(self, found: dict[str, float], step: int) -> dict[str, float]:
        for name, value in found.items():
            if not math.isfinite(value) and name not in self._warned:
                self._warned.add(name)
                self._warn(
                    f"{name} of held-out rows is {value} after step {step}: evaluations in which it is not finite have no value of it"
                )
        return {name: value for name, value in found.items() if math.isfinite(value)}
