"""Metrics of a program's predictions, the best checkpoint by one of them, and samples: on any ranks, and across a stop."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from tests.builders.checkpoints import committed, saves_in_turn, stop_after
from tests.builders.programs import line_request, write_program
from tests.ranks.groups import results_in_ranks, train_in_ranks

from tuneyard.api import BadInput, TuneyardError
from tuneyard.tracking.events import Evaluated, Event, Warned
from tuneyard.tracking.remarks import remarks_of
from tuneyard.training import TrainRequest, TrainResult, train

PREDICT = "return [{'y': float(each), 'output': f'{float(each):.0f}', 'reference': '1'} for each in model(batch['x'])[:, 0]]"
METRICS = """

    def metrics(self, predictions, rows):
        wrong = [abs(each["y"] - row["y"]) for each, row in zip(predictions, rows, strict=True)]
        return {"error": sum(wrong) / len(wrong), "rows": float(len(rows))}
"""
FIELDS: dict[str, Any] = {
    # Far too high a rate: the error falls, and then grows with each step.
    "optimizer": {"name": "sgd", "learningRate": 0.9, "schedule": "constant", "warmup": 0, "maxGradNorm": 0},
    "steps": 8,
    "checkpoint": {"everySteps": 2, "keep": 1},
    "evaluation": {
        "everySteps": 1,
        "metrics": ["exact_match"],
        "best": {"metric": "error", "mode": "min"},
        "samples": 3,
        "predictions": True,
    },
}


def with_metrics(folder: Path, metrics: str = METRICS, **changes: str) -> Path:
    write_program(folder, predict=PREDICT, **changes)
    module = folder / "line.py"
    module.write_text(module.read_text().rstrip() + metrics)
    return folder


def request_of(folder: Path, program: Path, plan: dict[str, Any] | None = None, **changes: Any) -> TrainRequest:
    fields = {**FIELDS, "data": {"source": str(program / "rows.jsonl"), "validationFraction": 0.3}, **changes}
    return line_request(folder, program, plan, **fields)


def figures(heard: list[Event]) -> dict[int, dict[str, float]]:
    return {event.step: dict(event.figures) for event in heard if isinstance(event, Evaluated)}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_metrics(tmp_path_factory.mktemp("program"))


@pytest.fixture(scope="module")
def whole(program: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainResult, dict[int, dict[str, float]], Path]:
    heard: list[Event] = []
    folder = tmp_path_factory.mktemp("whole")
    with saves_in_turn():
        result = train(request_of(folder, program, checkpoint={"everySteps": 2, "keep": 9}), emit=heard.append)
    assert not [event.message for event in heard if isinstance(event, Warned)]
    return result, figures(heard), folder / "out"


def test_each_evaluation_has_the_figures_and_the_best_one_is_the_result(
    whole: tuple[TrainResult, dict[int, dict[str, float]], Path],
) -> None:
    result, found, output = whole
    errors = {step: each["error"] for step, each in found.items()}
    best = min(errors, key=errors.__getitem__)

    assert list(found) == list(range(1, 9))
    assert all(set(each) == {"error", "rows", "exact_match"} for each in found.values())
    assert best not in (1, 8)
    assert result.details["best"]["step"] == best
    assert result.details["metrics"] == found[best]
    assert f"the weights of step {best} are saved: error {errors[best]:.4g} is the best of 8 evaluations" in remarks_of(asdict(result))
    predictions = [json.loads(line) for line in (output / "predictions.jsonl").read_text().splitlines()]
    assert len(predictions) == found[best]["rows"]
    assert predictions[0] == json.loads((output / "predictions" / f"step-{best}.jsonl").read_text().splitlines()[0])
    assert f"error | {errors[best]:.4g}"[:12] in (output / "model" / "README.md").read_text()


def test_the_figures_and_the_best_are_the_same_on_two_ranks_and_after_a_stop(
    whole: tuple[TrainResult, dict[int, dict[str, float]], Path], program: Path, tmp_path: Path
) -> None:
    one, found, output = whole
    layouts: dict[str, dict[str, Any]] = {"ranks": {}, "sharded": {"zero": 3}}
    two = results_in_ranks([request_of(tmp_path / name, program, {"workers": 2, **plan}) for name, plan in layouts.items()], workers=2)
    shutil.copytree(output.parent, tmp_path / "stopped")
    stop_after(4, tmp_path / "stopped" / "out")
    heard: list[Event] = []
    with saves_in_turn():
        resumed = train(request_of(tmp_path / "stopped", program), emit=heard.append)

    for name, result in zip(layouts, two, strict=True):
        assert result.details["best"]["step"] == one.details["best"]["step"], name
        assert result.details["metrics"] == pytest.approx(one.details["metrics"], rel=1e-4), name
        assert committed(tmp_path / name / "out")[-1] == 8
        kept = {path.name.split(".")[0] for path in (tmp_path / name / "out" / "checkpoints").glob("step-*")}
        assert kept == {f"step-{one.details['best']['step']}", "step-8"}, name
    assert resumed.resumed_from == 4
    assert figures(heard) == {step: each for step, each in found.items() if step > 4}
    assert resumed.details["best"] == one.details["best"]
    samples = {path.name: path.read_text() for path in (output / "predictions").iterdir()}
    assert {path.name: path.read_text() for path in (tmp_path / "stopped" / "out" / "predictions").iterdir()} == samples
    assert len(samples) == 8
    assert all(len(text.splitlines()) == 3 for text in samples.values())
    weights = [load_file(folder / "model" / "model.safetensors") for folder in (output, tmp_path / "stopped" / "out")]
    assert all(bool((weights[0][name] == weights[1][name]).all()) for name in weights[0])


def metrics_of(body: str) -> str:
    return f"\n\n    def metrics(self, predictions, rows):\n        {body}\n"


_UNNAMED = {"evaluation": {"everySteps": 2}}
WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "a best that is not there": (
        METRICS,
        {"evaluation": {"everySteps": 2, "best": {"metric": "errors", "mode": "min"}}},
        "evaluation.best.metric is errors, and an evaluation of line:Line has loss, error, rows",
    ),
    "a best without metrics": (
        "",
        {"evaluation": {"everySteps": 2, "best": {"metric": "rouge_l"}}},
        "evaluation.best.metric is rouge_l, and an evaluation of line:Line has loss",
    ),
    "raises on all rows": (metrics_of("return {'a': 1 / (len(rows) < 9)}"), _UNNAMED, "ZeroDivisionError: division by zero, at line.py"),
    "a list": (metrics_of("return {'a': [each['y'] for each in predictions]}"), _UNNAMED, "returned a as list, and not as a number"),
    "twice": (
        metrics_of("return {'exact_match': 0.5}"),
        {"evaluation": {"metrics": ["exact_match"]}},
        "returned exact_match, which evaluation.metrics names too",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_metrics_that_cannot_be_reported_are_refused(case: str, tmp_path: Path) -> None:
    metrics, fields, said = WRONG[case]
    program = with_metrics(tmp_path / "program", metrics)

    with pytest.raises(TuneyardError) as raised:
        train(request_of(tmp_path, program, {"micro_batch": 8}, **fields))

    assert said in raised.value.cause
    assert raised.value.next_step
    assert "step-2" not in str(list((tmp_path / "out").rglob("*")))


def test_metrics_without_predict_are_refused(tmp_path: Path) -> None:
    program = with_metrics(tmp_path / "program")
    module = program / "line.py"
    module.write_text(module.read_text().replace("def predict", "def foretell"))

    with pytest.raises(BadInput, match=r"has no function predict, and evaluation.metrics and its function metrics asks for predictions"):
        train(request_of(tmp_path, program, evaluation={"metrics": ["rouge_l"]}))


def test_figures_that_are_undefined_or_change_their_names_are_said_and_never_the_best(tmp_path: Path) -> None:
    body = """self.calls = getattr(self, "calls", 0) + 1
        if len(rows) < 9:
            raise ValueError("too few rows")
        return {"a": float("nan") if self.calls < 4 else 1.0, **({"b": 1.0} if self.calls == 2 else {})}"""
    program = with_metrics(tmp_path / "program", metrics_of(body))
    heard: list[Event] = []

    result = train(request_of(tmp_path, program, evaluation={"everySteps": 2, "best": {"metric": "a", "mode": "max"}}), emit=heard.append)

    said = [event.message for event in heard if isinstance(event, Warned)]
    assert figures(heard) == {2: {"b": 1.0}, 4: {}, 6: {"a": 1.0}, 8: {"a": 1.0}}
    assert result.details["best"]["step"] == 6
    assert "ValueError: too few rows" in said[0]
    assert "a trial on 2 of the held-out rows" in said[0]
    assert [message for message in said if "a of held-out rows is nan after step 2" in message]
    assert [message for message in said if "does not return the same names each time: b" in message]
    assert len([message for message in said if "has no value of a, and counts as no improvement" in message]) == 2


def test_an_error_of_metrics_on_one_rank_is_the_error_of_all(tmp_path: Path) -> None:
    program = with_metrics(tmp_path / "program", metrics_of("return {'a': 1 / 0}"))

    (answer,) = train_in_ranks([request_of(tmp_path, program, {"workers": 2}, evaluation={"everySteps": 2})], workers=2)

    assert isinstance(answer, BadInput)
    assert "metrics of line:Line failed: ZeroDivisionError" in answer.cause
