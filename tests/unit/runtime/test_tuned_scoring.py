"""A score task in a search: its sample, what can be tried, what is expected, and what becomes of a trial."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.clusters.run_machines import here
from tests.unit.runtime.test_predicted_scores import CONFIG, result

from tuneyard.admission import Machine
from tuneyard.api import BadInput, FailureKind, JobFailed, JobSpec
from tuneyard.runtime.score import pool
from tuneyard.runtime.task_context import TaskContext, with_found
from tuneyard.runtime.tune.scoring import TunedScoring
from tuneyard.scoring.request import ScoreRequest, ScoreResult
from tuneyard.tracking import Event, TaskEvent, Warned

Make = Callable[..., TunedScoring]


@pytest.fixture
def heard() -> list[Event]:
    return []


@pytest.fixture
def tuned(tmp_path: Path, heard: list[Event], monkeypatch: pytest.MonkeyPatch) -> Make:
    """A task of 640 rows on four H100, in a search with `space`."""
    monkeypatch.setenv("TUNEYARD_HISTORY", "off")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"q": "a" * 400}) + "\n" for _ in range(640)))

    def make(space: dict[str, Any] | None = None, *, gpus: int = 4, rows: int = 128, instances: int = 1, **score: Any) -> TunedScoring:
        data = {"source": "rows.jsonl", "prompt": "q"}
        body = {"model": {"name": "./model"}, "data": data, "generation": {"maxTokens": 100}} | score
        judge = {"name": "judge", "score": body, "resources": {"instances": instances}}
        search = {"name": "search", "tune": {"task": "judge", "space": space or {}, "rowsPerTrial": rows}}
        head = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "nightly"}}
        job = JobSpec.model_validate(head | {"spec": {"tasks": [judge, search]}})
        machines = here(tmp_path, job)
        monkeypatch.setattr(type(machines), "machine", property(lambda _: Machine("h100-80gb", gpus)))
        monkeypatch.setattr(machines.warm, "engines", lambda: None)
        context = TaskContext(
            job=job,
            base_dir=tmp_path,
            output=machines._output,
            machines=machines,
            scratch=tmp_path / "scratch",
            secrets=["hunter2"],
            emit=heard.append,
            should_stop=lambda: False,
            wanted=["search"],
        )
        return TunedScoring(job.spec.task("search"), job.spec.task("judge"), context)

    return make


def points(found: TunedScoring, name: str) -> set[Any]:
    import numpy as np

    return {found.space.point(tuple(key))[name] for key in found.space.legal_keys(np.random.default_rng(0))}


def test_the_usual_space_lays_the_same_gpus_out_anew(tuned: Make) -> None:
    found = tuned(instances=4)
    assert found.devices({}) == 4
    assert found.space.settings["engine.tensorParallel"] == (1, 2, 4)
    assert found.space.has({**_own(found), "engine.tensorParallel": 2, "resources.instances": 2})
    assert not found.space.has({**_own(found), "engine.tensorParallel": 2, "resources.instances": 1})
    assert max(found.space.settings["engine.batch"]) == 64, "a larger batch would hold all rows of a trial at once"
    assert not {"engine.precision", "engine.eager"} & found.space.settings.keys()


def _own(found: TunedScoring) -> dict[str, Any]:
    return {name: values[0] for name, values in found.space.settings.items()}


def test_what_the_file_says_is_not_tried_against_itself(tuned: Make) -> None:
    assert points(tuned({"engine.batch": [32, 64]}), "engine.batch") == {32}
    assert points(tuned({"engine.prefixCache": [True, False]}), "engine.prefixCache") == {False}


def test_a_larger_batch_is_expected_to_be_faster(tuned: Make) -> None:
    found = tuned()
    few, many = found.predicted({"engine.batch": 4}), found.predicted({"engine.batch": 64})
    assert few is not None
    assert many is not None
    assert many > 4 * few
    assert found.unit == "tokens"


def test_likelihoods_are_counted_in_rows(tuned: Make) -> None:
    found = tuned(choices={"texts": ["yes", "no"]}, metrics=["acc"], data={"source": "rows.jsonl", "prompt": "q", "reference": "q"})
    assert found.unit == "rows"
    speed = found.predicted({})
    assert speed is not None
    assert speed > 0
    texts = {"metrics": ["perplexity"], "data": {"source": "rows.jsonl", "prompt": "q", "reference": "q"}}
    assert tuned(**texts).unit == "rows"


@pytest.mark.parametrize(
    ("space", "given", "words"),
    [
        ({"engine.batch": [256]}, {}, "cannot be told from a smaller one in trials of 128 rows"),
        ({"engine.batch": [8]}, {"engine": {"tensorParallel": 3}}, "tensorParallel 3 does not divide"),
        ({"engine.batch": [8]}, {"data": {"source": "empty.jsonl", "prompt": "q"}}, "empty"),
        ({"engine.batch": [8]}, {"instances": 5}, "asks for 5 GPUs"),
    ],
)
def test_what_cannot_be_searched_is_refused(tuned: Make, tmp_path: Path, space: dict[str, Any], given: dict[str, Any], words: str) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(BadInput, match=words):
        tuned(space, **given)


def test_settings_that_do_not_work_are_left_out_with_the_reason(tuned: Make) -> None:
    found = tuned({"engine.tensorParallel": [2, 3, 8]})
    assert points(found, "engine.tensorParallel") == {2}
    assert "does not divide" in found.why_not({"engine.tensorParallel": 3})
    assert "this machine has 4" in found.why_not({"engine.tensorParallel": 8})


def scored(asked: list[ScoreRequest], fields: dict[str, Any]) -> Callable[..., Any]:
    def score(request: ScoreRequest, *, emit: Callable[[Event], None], **_: Any) -> ScoreResult:
        asked.append(request)
        emit(Warned(task=request.name, message="engines start cold"))
        emit(TaskEvent(task=request.name, state="started"))
        return ScoreResult(metrics={}, output="", mfu=None, latency_s={}, samples=[{"prompt": "secret"}], **fields)

    return score


def test_a_trial_scores_the_sample_and_history_keeps_figures_alone(
    tuned: Make, heard: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[ScoreRequest] = []
    monkeypatch.setattr(pool, "score", scored(asked, result(20.0)))
    found = tuned({"engine.batch": [8]}, instances=2)
    trials = [found.measure(0, {"engine.batch": 8}, number, 60.0, lambda: False) for number in (3, 4)]
    assert [trial.tokens_per_s for trial in trials] == [3200.0, 3200.0]
    assert (asked[0].task.data.sample, asked[0].task.rows_per_part, asked[0].name) == (128, 16, "search-3")
    assert [event.message for event in heard if isinstance(event, Warned)] == ["engines start cold"]
    told = [event for event in heard if isinstance(event, TaskEvent)]
    assert [(event.task, event.kind, event.state) for event in told[:2]] == [
        ("search/3", "score", "started"),
        ("search/3", "score", "succeeded"),
    ]
    kept = told[1].result
    assert kept is not None
    assert kept["details"]["speed"]["measured_s"] == 20.0
    assert "secret" not in json.dumps(kept)


def test_engines_that_do_not_start_are_a_result(tuned: Make, heard: list[Event], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise JobFailed("all 1 engines died; the key was hunter2", "look", kind=FailureKind.NODE_LOST)

    monkeypatch.setattr(pool, "score", fails)
    trial = tuned().measure(0, {"engine.batch": 8}, 1, 60.0, lambda: False)
    assert (trial.tokens_per_s, trial.failure) == (None, "NodeLost")
    assert "hunter2" not in trial.message
    assert [event.state for event in heard if isinstance(event, TaskEvent)] == ["started", "failed"]


def test_a_trial_without_an_answer_has_no_speed(tuned: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "score", scored([], result(20.0) | {"output_tokens": 0}))
    assert tuned().measure(0, {}, 1, 60.0, lambda: False).tokens_per_s is None


def test_the_score_task_takes_what_was_found(tuned: Make) -> None:
    found = tuned()
    task = with_found(found._task, {"search": {"kind": "tune", "tuned": "judge", "best": {"engine.batch": 16}}})
    assert task.score is not None
    assert task.score.engine.batch == 16
