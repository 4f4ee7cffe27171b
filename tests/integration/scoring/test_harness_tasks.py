"""Tasks of lm-evaluation-harness in a real engine: the figures of a run that was stopped and resumed are those of its own runner."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from tests.builders.harness_tasks import likely_continuations
from tests.builders.models import sentences, write_model
from tests.builders.scores import score_request
from tests.integration.scoring.conftest import Score, parts_in

from tuneyard.api import BadInput
from tuneyard.scoring import ScoreRequest, ScoreResult

ROWS = 12
TASKS = ["choices", "words", "greedy", "rolling", "pair"]
DATA = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": "rows.jsonl"}}, "test_split": "test"}
CHOICES: dict[str, Any] = {
    **DATA,
    "output_type": "multiple_choice",
    "doc_to_text": "question",
    "doc_to_choice": "choices",
    "doc_to_target": "right",
    "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
}
OWN: dict[str, dict[str, Any]] = {
    "choices": {**CHOICES, "num_fewshot": 2, "fewshot_split": "test"},
    "words": {
        **DATA,
        "output_type": "generate_until",
        "doc_to_text": "question",
        "doc_to_target": "word",
        "metric_list": [{"metric": "exact_match", "ignore_case": True}],
        "generation_kwargs": {"until": [" red", "\n"], "max_gen_toks": 12, "do_sample": False},
        "filter_list": [{"name": "word", "filter": [{"function": "regex", "regex_pattern": "([a-z]+)"}, {"function": "take_first"}]}],
        "num_fewshot": 9,
        "fewshot_split": "test",
    },
    "greedy": {
        **DATA,
        "output_type": "loglikelihood",
        "doc_to_text": "question",
        "doc_to_target": "said",
        "target_delimiter": "",
        "metric_list": [{"metric": "acc"}, {"metric": "perplexity"}],
    },
    "rolling": {
        **DATA,
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "long",
        "metric_list": [{"metric": "word_perplexity"}, {"metric": "bits_per_byte"}],
    },
    "one": CHOICES,
    "two": {**CHOICES, "doc_to_text": "Say: {{question}}"},
}
FIGURES = ["choices/acc", "choices/acc_norm", "words/exact_match/word", "greedy/acc", "greedy/perplexity", "rolling/word_perplexity"]
FIGURES += ["rolling/bits_per_byte", "one/acc", "one/acc_norm", "two/acc", "two/acc_norm", "pair/acc"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and a job with own tasks of the harness. Every other continuation is what the model says; long texts exceed the model."""
    made = tmp_path_factory.mktemp("harness")
    write_model(made / "model", hidden_size=128, num_attention_heads=2, num_key_value_heads=1)
    texts, rows = sentences(2 * ROWS), []
    said = likely_continuations(made / "model", texts[:ROWS])
    for place, text in enumerate(texts[:ROWS]):
        rows.append(
            {
                "question": text,
                "choices": [texts[-1 - place][:9].strip(), "the cat sat"],
                "right": place % 2,
                "word": "dog",
                "said": said[place],
                "long": " ".join(texts[place : place + 12]),
            }
        )
    rows[-1] = rows[0]
    (made / "tasks").mkdir()
    (made / "tasks" / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, task in OWN.items():
        (made / "tasks" / f"{name}.yaml").write_text(yaml.safe_dump({"task": name, **task}))
    pair = {"group": "pair", "task": ["one", "two"], "aggregate_metric_list": [{"metric": "acc", "weight_by_size": True}]}
    (made / "tasks" / "pair.yaml").write_text(yaml.safe_dump(pair))
    return made


def request(folder: Path, **harness: Any) -> ScoreRequest:
    score = {
        "model": {"name": "model"},
        "data": {"lmEval": {"tasks": TASKS, "folder": "tasks", **harness}},
        "rowsPerPart": 32,
    }
    return score_request(folder, "out", score)


@pytest.fixture(scope="module")
def scored(folder: Path, score: Score, monkeypatch_module: pytest.MonkeyPatch) -> ScoreResult:
    """The result of a run that was stopped after its first part, and resumed."""
    monkeypatch_module.setenv("HF_HUB_OFFLINE", "1")
    out = folder / "out"
    stopped: ScoreResult = score(request(folder), should_stop=lambda: parts_in(out) > 0)
    assert (stopped.status, stopped.metrics) == ("stopped", {})
    result: ScoreResult = score(request(folder))
    assert result.rows_resumed > 0
    return result


@pytest.fixture(scope="module")
def monkeypatch_module() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def theirs(folder: Path, scored: ScoreResult) -> dict[str, dict[str, Any]]:  # noqa: ARG001 - sets the environment
    """The results of the harness's own runner."""
    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    os.environ.pop("HF_XET_HIGH_PERFORMANCE", None)  # the harness sets it at its import, and engines of later tests would start cold
    model = HFLM(pretrained=str(folder / "model"), dtype="float32", device="cpu", batch_size=1, max_length=254)
    here = Path.cwd()
    os.chdir(folder / "tasks")
    try:
        found = simple_evaluate(
            model=model,
            tasks=TASKS,
            task_manager=TaskManager(include_path=".", include_defaults=False),
            bootstrap_iters=0,
        )
    finally:
        os.chdir(here)
    assert found is not None
    results: dict[str, dict[str, Any]] = found["results"]
    return results


def test_all_figures_are_there(scored: ScoreResult) -> None:
    assert sorted(scored.metrics) == sorted(FIGURES)
    assert scored.details["lm_eval"]["shots"]["choices"] == 2


@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_is_that_of_the_harness(figure: str, scored: ScoreResult, theirs: dict[str, dict[str, Any]]) -> None:
    task, metric, *of = figure.split("/")
    assert scored.metrics[figure] == pytest.approx(theirs[task][f"{metric},{of[0] if of else 'none'}"], rel=1e-4)


def test_some_continuations_are_greedy_and_some_are_not(scored: ScoreResult) -> None:
    assert 0 < scored.metrics["greedy/acc"] < 1


def test_equal_requests_are_scored_once(scored: ScoreResult) -> None:
    rows = pq.read_table(scored.output).to_pylist()
    assert [row["row"] for row in rows] == list(range(scored.rows))
    assert scored.rows < scored.details["lm_eval"]["requests"]  # the last document is the first one
    assert "ids" not in rows[0]


def test_other_rows_under_the_same_names_are_refused_on_resume(folder: Path, scored: ScoreResult, score: Score) -> None:  # noqa: ARG001
    rows = folder / "tasks" / "rows.jsonl"
    before = rows.read_text()
    rows.write_text(before.replace("the cat sat", "the dog sat", 1))
    try:
        with pytest.raises(BadInput, match=r"other settings: .*data\.lmEval\.requests\.one was"):
            score(request(folder))
    finally:
        rows.write_text(before)
