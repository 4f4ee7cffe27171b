"""Figures of a program's predictions: by metrics of Tuneyard's table, and by the program's own function `metrics`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from typing import Any, overload

import torch

from tuneyard.api import BadInput, JobFailed
from tuneyard.api.evaluation import LOSS
from tuneyard.metrics import METRICS, PLAIN, Totals, Ways
from tuneyard.metrics.bleu import tokenizer_for
from tuneyard.metrics.choices import Chosen
from tuneyard.metrics.similarity import Similarity
from tuneyard.metrics.win_rate import Preference
from tuneyard.training.program.blame import blamed
from tuneyard.training.program.contract import Row
from tuneyard.training.program.loading import Loaded
from tuneyard.training.program.rows import RowsInOrder
from tuneyard.training.proofs.limit import within
from tuneyard.training.request import TrainResult

LIMIT_S = 600.0
"""Seconds that a program's `metrics` may take for an evaluation."""
MOST_FIGURES = 64
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]{0,63}")
_TAKEN = {LOSS, "eval_loss", "step", "metrics", *(each.name for each in fields(TrainResult))}
"""Names that a report, or history, has for something else."""


class HeldOutRows(Sequence[Row]):
    """The rows of predictions, read when they are asked for."""

    def __init__(self, rows: RowsInOrder, numbers: Sequence[int]) -> None:
        self._rows, self._numbers = rows, numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> list[Row]: ...
    def __getitem__(self, place: int | slice) -> Row | list[Row]:
        if isinstance(place, slice):
            return self._rows.__getitems__(self._numbers[place])
        return self._rows[self._numbers[place]]

    def __iter__(self) -> Iterator[Row]:
        return (self._rows[number] for number in self._numbers)


@dataclass(slots=True)
class _Answer:
    """A prediction as metrics of texts see it."""

    output: str | None
    references: tuple[str, ...]
    ways: Ways
    answered: bool = True
    samples: tuple[str | None, ...] = ()
    choices: Chosen | None = None
    nll: float | None = None
    reference_tokens: int = 0
    verdict: float | None = None
    preference: Preference | None = None
    similarity: Similarity | None = None
    values: dict[str, float] = field(default_factory=dict)
    sums: dict[str, Totals] = field(default_factory=dict)


def table_figures(names: Sequence[str], predictions: Sequence[Mapping[str, Any]], program: str) -> dict[str, float]:
    """Figures by metrics of the table: those of a score task with these outputs and references, and with default settings.

    Raises BadInput for predictions without a text `output`, and a text or a list of texts `reference`.
    """
    if not names:
        return {}
    answers = [_answer(each, program) for each in predictions]
    ways = replace(PLAIN, bleu=tokenizer_for(text for each in answers for text in each.references)[0]) if "bleu" in names else PLAIN
    found: dict[str, float] = {}
    for name in names:
        for answer in answers:
            answer.ways = ways
            METRICS[name].measure(answer)
        found |= {figure.name: value for figure, value, _ in METRICS[name].known(METRICS[name].totals(answers), len(answers))}
    return found


def _answer(prediction: Mapping[str, Any], program: str) -> _Answer:
    output, given = prediction.get("output"), prediction.get("reference")
    references = [given] if isinstance(given, str) else given
    if not isinstance(output, str) or not isinstance(references, list) or not all(isinstance(each, str) for each in references):
        raise BadInput(
            f"evaluation.metrics compares output and reference of each prediction, and predict of {program} returned "
            f"{', '.join(f'{name}: {type(value).__name__}' for name, value in prediction.items() if name != 'row') or 'nothing'}",
            'return {"output": text, "reference": text or list of texts} for each row',
        )
    return _Answer(output, tuple(references), PLAIN)


def own_figures(
    loaded: Loaded, predictions: Sequence[Mapping[str, Any]], rows: Sequence[Row], *, limit_s: float = LIMIT_S
) -> dict[str, float]:
    """Figures by the program's own function. Empty if it has none.

    Raises BadInput if it raises, or if it does not return a dict of numbers, and JobFailed if it takes longer than `limit_s` seconds.
    """
    if not loaded.measures:
        return {}

    def measured() -> Any:
        with blamed(f"metrics of {loaded.name}", loaded.folder):
            return loaded.program.metrics([dict(each) for each in predictions], rows)

    late = JobFailed(
        f"metrics of {loaded.name} did not return within {limit_s:g} s, for {len(rows)} rows",
        "make it faster, or lower data.validationFraction; the last committed checkpoint is untouched",
    )
    found = within(limit_s, measured, late)
    if not isinstance(found, Mapping) or len(found) > MOST_FIGURES:
        kind = f"{len(found)} figures" if isinstance(found, Mapping) else type(found).__name__
        raise BadInput(
            f"metrics of {loaded.name} returned {kind}, and not a dict of at most {MOST_FIGURES} numbers", 'return {"accuracy": 0.9, …}'
        )
    return {_name(name, loaded): _number(name, value, loaded) for name, value in found.items()}


def _name(name: Any, loaded: Loaded) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in _TAKEN:
        taken = isinstance(name, str) and name in _TAKEN
        raise BadInput(
            f"metrics of {loaded.name} names a figure {name!r}" + (", which is a name of Tuneyard's" if taken else ""),
            "take another name, of at most 64 ASCII letters, digits, _, -, / and .",
        )
    return name


def _number(name: str, value: Any, loaded: Loaded) -> float:
    """The number; NaN where the metric is undefined."""
    if torch.is_tensor(value) and value.numel() == 1 and not value.is_complex():
        return float(value)
    if getattr(value, "shape", None) == () and getattr(getattr(value, "dtype", None), "kind", "") in "biuf" and not torch.is_tensor(value):
        return float(value)
    if not isinstance(value, Real):
        raise BadInput(
            f"metrics of {loaded.name} returned {name} as {type(value).__name__}, and not as a number",
            "return one number for each name; nan where it is undefined",
        )
    return float(value)


def nearest(name: str, known: Sequence[str]) -> str:
    """The next step for a name that is none of `known`."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else f"name one of them, or have metrics return {name}"
