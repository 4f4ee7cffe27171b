"""Rules about evaluations: what they need, and the figures that each kind of task has."""

from __future__ import annotations

from tuneyard.api.evaluation import LOSS, OF_PAIRS, OF_RANKERS
from tuneyard.api.rules_case import Case, Rule, always

_FRACTION = {"train": "train.data.validationFraction", "rank": "rank.validationFraction"}


def _holds_rows_out(case: Case) -> bool:
    data = case.train.data
    return data.validation is not None or data.validation_fraction > 0


def _evaluates_nothing(case: Case) -> bool:
    evaluation = case.train.evaluation
    asked = evaluation.goal is not None or evaluation.every_steps != "auto" or bool(evaluation.metrics) or evaluation.samples > 0
    return asked and not _holds_rows_out(case)


def _figures(case: Case) -> list[str]:
    """Figures of held-out rows of a task without a program."""
    if case.task.rank is None:
        return [LOSS, *(OF_PAIRS if case.train.objective == "dpo" else ())]
    others = case.task.rank.labels[1:]
    return [LOSS, *OF_RANKERS, *(f"{figure}_{label}" for label in others for figure in OF_RANKERS)]


def _has_program(case: Case) -> bool:
    """Whether the user's own code trains; the training of a ranker is a program of Tuneyard's."""
    return case.task.rank is None and case.train.program is not None


def _lacks_the_best(case: Case) -> bool:
    best = case.train.evaluation.best
    return not _has_program(case) and best is not None and best.metric not in _figures(case)


def _predicts(case: Case) -> bool:
    evaluation = case.train.evaluation
    return evaluation.predictions or bool(evaluation.metrics) or evaluation.samples > 0


EVALUATION_RULES = (
    Rule(
        id="evaluation-without-data",
        kind="train",
        refused="evaluation or early stop without evaluation data",
        why="there is nothing to evaluate on",
        field="train.evaluation",
        breaks=_evaluates_nothing,
        nearest=lambda c: ({_FRACTION[c.task.kind]: 0.05}, {"train.evaluation": None}),
        example={"train.evaluation.earlyStop": 3},
        of_rankers=True,
    ),
    Rule(
        id="best-of-unknown-figure",
        kind="train",
        refused="the best evaluation by a figure that the task does not have",
        why="a language model has its loss on held-out rows, preference pairs their rewards too, and a ranker those of its labels; "
        "a program computes figures of its own",
        field="train.evaluation.best.metric",
        breaks=_lacks_the_best,
        nearest=lambda c: [{"train.evaluation.best": {"metric": name}} for name in _figures(c)[:2]],
        example={"train.evaluation.best": {"metric": "rouge_l"}, "train.data.validationFraction": 0.05},
        of_rankers=True,
    ),
    Rule(
        id="predictions-without-program",
        kind="train",
        refused="`metrics`, `predictions` or `samples` of an evaluation without a program",
        why="the program's predict makes predictions; for a language model, a score task makes and measures them",
        field="train.evaluation",
        breaks=lambda c: not _has_program(c) and _predicts(c),
        nearest=always({f"train.evaluation.{name}": None for name in ("predictions", "metrics", "samples")}),
        example={"train.evaluation.predictions": True},
        of_rankers=True,
    ),
    Rule(
        id="predictions-without-data",
        kind="train",
        refused="`predictions` without evaluation data",
        why="they are made from held-out rows",
        field="train.evaluation.predictions",
        breaks=lambda c: _has_program(c) and c.train.evaluation.predictions and not _holds_rows_out(c),
        nearest=always({"train.data.validationFraction": 0.05}),
        example={"train.program": "captions:Captions", "train.evaluation.predictions": True},
    ),
)
