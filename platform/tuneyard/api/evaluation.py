"""Evaluations of a train or rank task on held-out samples: when, by which figures, and which one is the best."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from tuneyard.api.base import Fields, located
from tuneyard.metrics import FIGURES, METRICS

_OF_TEXTS = tuple(name for name, metric in METRICS.items() if metric.needs <= {"output", "reference"})
"""Metrics that compare a text with references: a program's predictions hold both."""
if TYPE_CHECKING:
    PredictionMetric = str
else:
    PredictionMetric = Literal[_OF_TEXTS]

MOST_SAMPLES = 1000
LOSS = "loss"
OF_PAIRS = ("rewards/accuracy", "rewards/margin", "rewards/chosen", "rewards/rejected")
"""Figures of preference pairs (TRL's): rewards are beta times log-ratios; accuracy is the share of pairs in order."""
OF_RANKERS = ("normalised_entropy", "auc", "calibration")
"""Figures of a ranker; of its further labels, with `_` and the label behind."""
_HIGHER = {figure.name: figure.higher_is_better for figure in FIGURES.values()}
_HIGHER |= {"rewards/accuracy": True, "rewards/margin": True, "normalised_entropy": False, "auc": True, LOSS: False}


def of_a_program(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Figures of held-out rows that are not those of a ranker or of preference pairs, in their order."""
    others = {"step", *OF_PAIRS}
    return {name: value for name, value in figures.items() if name not in others and not name.startswith(OF_RANKERS)}


def higher_is_better(name: str) -> bool | None:
    """Whether a higher value of a figure of Tuneyard is better; None for unknown figures, and for those without a better side."""
    of_label = next((figure for figure in OF_RANKERS if name.startswith(f"{figure}_")), name)
    return _HIGHER.get(name, _HIGHER.get(of_label))


class Best(Fields):
    """The figure by which an evaluation is the best. Its checkpoint is kept, and its weights are the result of the task."""

    metric: str = Field(
        default=LOSS,
        pattern=r"^[A-Za-z_][A-Za-z0-9_./-]*$",
        max_length=64,
        description="loss, or a figure of the held-out rows: one of evaluation.metrics, of the program's own metrics, of a ranker "
        "(auc, normalised_entropy) or of preference pairs (rewards/accuracy)",
    )
    mode: Literal["max", "min"] | None = Field(
        default=None, description="which value is better; default: that of a metric of Tuneyard; your own metrics need it"
    )

    @model_validator(mode="after")
    def _has_a_direction(self) -> Self:
        if self.mode is None and higher_is_better(self.metric) is None:
            raise located(f"{self.metric} has no better side that is known: write max, or min if lower values are better", "mode")
        return self

    @property
    def is_max(self) -> bool:
        """Whether a higher value is better."""
        return self.mode == "max" if self.mode is not None else bool(higher_is_better(self.metric))


class Evaluation(Fields):
    """Figures of held-out samples, while training: the loss, and metrics of a program's predictions."""

    every_steps: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        default="auto", description="auto: as often as checkpoint.everySteps, or about 20 over the run"
    )
    early_stop: int | None = Field(
        default=None, ge=1, description="end after this many evaluations without improvement, keep the best; default: never"
    )
    min_improvement: float = Field(
        default=0.0, ge=0, description="the figure of best must be better by more than this to count; the loss is in nats per token"
    )
    best: Best | None = Field(
        default=None, description="keep the best evaluation by this figure; default: by the loss with earlyStop, else the last weights"
    )
    metrics: list[PredictionMetric] = Field(
        default_factory=list,
        max_length=len(_OF_TEXTS),
        description="of a program: metrics of its predictions, which have the keys output and reference",
    )
    predictions: bool = Field(
        default=False, description="of a program: at the end, write its predictions for the held-out rows to predictions.jsonl"
    )
    samples: int = Field(
        default=0,
        ge=0,
        le=MOST_SAMPLES,
        description="of a program: held-out rows whose predictions each evaluation writes to predictions/step-N.jsonl",
    )

    @property
    def goal(self) -> Best | None:
        """What makes an evaluation the best; None: the last weights are the result."""
        return self.best if self.best is not None or self.early_stop is None else Best()
