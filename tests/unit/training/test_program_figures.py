"""Figures of a program's predictions, samples of them, and the choice of the best evaluation."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.builders.programs import write_program
from transformers import TrainerControl

from tuneyard.api import BadInput, JobFailed
from tuneyard.api.evaluation import Best
from tuneyard.scoring.metrics import Sums
from tuneyard.scoring.rows import ScoredRow
from tuneyard.storage import open_store
from tuneyard.training.early_stop import BestEvaluation
from tuneyard.training.program.loading import Loaded, load_program
from tuneyard.training.program.measuring import HeldOutRows, own_figures, table_figures
from tuneyard.training.program.predictions import MOST_FILES, spread, write_samples
from tuneyard.training.program.rows import RowsInOrder
from tuneyard.training.progress import Progress

SAID = [("the cat sat", ["the cat sat down"]), ("a dog", ["the dog", "a dog"]), ("", ["a bird"])]
ROWS = [{"x": number} for number in range(6)]


def measured(folder: Path, body: str) -> Loaded:
    source = f"class Line:\n    collate = loss = None.__class__\n\n    def metrics(self, predictions, rows):\n        {body}\n"
    write_program(folder, source)
    return load_program("line:Line", folder)


@pytest.mark.parametrize("name", ["exact_match", "token_f1", "rouge_l", "bleu", "chrf", "json_valid"])
def test_metrics_of_the_table_are_those_of_a_score_task(name: Any) -> None:
    rows = [ScoredRow(row=number, output=output, references=tuple(known)) for number, (output, known) in enumerate(SAID)]
    from tuneyard.metrics import METRICS

    for row in rows:
        METRICS[name].measure(row)
    predictions = [{"row": number, "output": output, "reference": known} for number, (output, known) in enumerate(SAID)]

    assert table_figures([name], predictions, "line:Line") == Sums.of(rows, [name]).figures([name])


@pytest.mark.parametrize("prediction", [{"text": "a"}, {"output": "a"}, {"output": 1, "reference": "a"}, {"output": "a", "reference": [1]}])
def test_predictions_that_are_no_texts_are_refused(prediction: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="compares output and reference of each prediction, and predict of line:Line returned"):
        table_figures(["rouge_l"], [prediction], "line:Line")


def test_own_metrics_see_predictions_and_rows_in_order(tmp_path: Path) -> None:
    loaded = measured(tmp_path, "return {'first': rows[0]['x'], 'far': rows[-1]['x'], 'all': sum(row['x'] for row in rows), "
                                "'two': len(rows[:2]), 'said': sum(each['y'] for each in predictions)}")  # fmt: skip
    rows = HeldOutRows(RowsInOrder(ROWS, seed=1), [1, 3, 5])

    assert own_figures(loaded, [{"y": 1}, {"y": 2}, {"y": 4}], rows) == {"first": 1, "far": 5, "all": 9, "two": 2, "said": 7}


WRONG = {
    "raises": ("return {'a': 1 / 0}", "metrics of line:Line failed: ZeroDivisionError: division by zero, at line.py line 5"),
    "exits": ("raise SystemExit(0)", "metrics of line:Line failed: SystemExit: 0, at line.py line 5"),
    "nothing": ("return None", "returned NoneType, and not a dict of at most 64 numbers"),
    "a list": ("return {'a': [1.0]}", "returned a as list, and not as a number"),
    "a text": ("return {'a': '1'}", "returned a as str, and not as a number"),
    "a tensor": ("import torch\n        return {'a': torch.ones(2)}", "returned a as Tensor, and not as a number"),
    "no name": ("return {1: 1.0}", "names a figure 1"),
    "a name of ours": ("return {'loss': 1.0}", "names a figure 'loss', which is a name of Tuneyard's"),
    "a blank": ("return {'a b': 1.0}", "names a figure 'a b'"),
    "many": ("return {f'a{i}': 1.0 for i in range(65)}", "returned 65 figures"),
}


@pytest.mark.parametrize("case", WRONG)
def test_metrics_that_cannot_be_reported_are_refused_with_the_line(case: str, tmp_path: Path) -> None:
    body, said = WRONG[case]
    with pytest.raises(BadInput) as raised:
        own_figures(measured(tmp_path, body), [], HeldOutRows(RowsInOrder(ROWS, seed=1), []))
    assert said in raised.value.cause
    assert raised.value.next_step


def test_metrics_that_never_return_end_the_run(tmp_path: Path) -> None:
    loaded = measured(tmp_path, "import threading\n        threading.Event().wait()")
    with pytest.raises(JobFailed, match=r"did not return within 0.1 s"):
        own_figures(loaded, [], HeldOutRows(RowsInOrder(ROWS, seed=1), []), limit_s=0.1)
    assert any(thread.name == "tuneyard-side" and thread.daemon for thread in threading.enumerate())


def test_numbers_of_numpy_and_torch_are_numbers(tmp_path: Path) -> None:
    body = "import numpy, torch\n        return {'a': numpy.float32(0.5), 'b': torch.tensor(2), 'c': True, 'd': numpy.mean([1, 2])}"
    found = own_figures(measured(tmp_path, body), [], HeldOutRows(RowsInOrder(ROWS, seed=1), []))
    assert found == {"a": 0.5, "b": 2.0, "c": 1.0, "d": 1.5}


def test_samples_of_a_step_are_written_once_and_their_number_is_bounded(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    for step in [*range(1, 100), 90]:  # the last one is an attempt that repeats a step
        write_samples(store, step, [f"line {step}"])

    steps = sorted(int(path.stem.removeprefix("step-")) for path in (tmp_path / "predictions").iterdir())
    assert steps[-1] == 90
    assert len(steps) <= MOST_FILES
    assert (tmp_path / "predictions" / "step-90.jsonl").read_text() == "line 90\n"


def test_samples_are_spread_over_the_rows() -> None:
    assert spread(10, 4) == [0, 2, 5, 7]
    assert spread(3, 10) == [0, 1, 2]
    assert spread(10, 10) == list(range(10))


def best_steps(values: list[float | None], goal: Best, *, patience: int | None = None, gain: float = 0.0) -> tuple[list[int], int, int]:
    """The best step after each evaluation, the steps until the end, and the number of warnings."""
    progress, said = Progress(), []
    judge = BestEvaluation(progress, goal, patience=patience, min_improvement=gain, warn=said.append)
    found = []
    for step, value in enumerate(values, start=1):
        progress.eval_losses.append((step, 1.0))
        progress.figures.append({"step": step, **({goal.metric: value} if value is not None else {})})
        control = judge.on_evaluate(None, SimpleNamespace(global_step=step), TrainerControl())
        found.append(progress.best_step)
        assert control.should_save is (progress.best_step == step or control.should_training_stop)
        if control.should_training_stop:
            break
    return found, len(found), len(said)


def test_the_best_evaluation_is_the_first_of_equal_ones_and_never_one_without_a_value() -> None:
    nan = float("nan")
    assert best_steps([0.5, 0.5, 0.7, 0.6], Best(metric="rouge_l"))[0] == [1, 1, 3, 3]
    assert best_steps([0.5, 0.5, 0.7, 0.4], Best(metric="rouge_l", mode="min"))[0] == [1, 1, 1, 4]
    assert best_steps([nan, None, 0.1, nan], Best(metric="rouge_l")) == ([0, 0, 3, 3], 4, 3)
    assert best_steps([0.5, 0.55, 0.7], Best(metric="rouge_l"), gain=0.1)[0] == [1, 1, 3]
    assert best_steps([0.5, 0.4, 0.3, 0.9], Best(metric="rouge_l"), patience=2) == ([1, 1, 1], 3, 0)
    assert best_steps([nan, nan], Best(metric="rouge_l"), patience=2) == ([0, 0], 2, 2)
