"""Requests of lm-evaluation-harness: their settings, their rows, their figures, and tasks that cannot be scored."""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from typing import Any

import pytest
import yaml

from tuneyard.metrics import harness_figure
from tuneyard.scoring.exchange import Evaluate, Generate
from tuneyard.scoring.harness.rows import HarnessRequest, Recorded, asked_of, keys_in
from tuneyard.scoring.harness.sampling import NotPossible, sampling_of
from tuneyard.scoring.harness.unusable import Unusable
from tuneyard.scoring.harness.work import _figures_in


def test_greedy_requests_leave_sampling_out_but_keep_the_penalty_of_the_model() -> None:
    found = sampling_of({"do_sample": False, "temperature": 0.0, "top_p": 0.5}, {"top_k": 20, "repetition_penalty": 1.05})
    assert found == {"repetition_penalty": 1.05, "temperature": 0.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0}


def test_sampling_takes_the_request_then_the_model_then_the_default_of_transformers() -> None:
    found = sampling_of({"do_sample": True, "temperature": 0.7, "num_beams": 1}, {"top_p": 0.8})
    assert (found["temperature"], found["top_p"], found["top_k"]) == (0.7, 0.8, 50)


@pytest.mark.parametrize(
    ("wished", "defaults", "said"),
    [
        ({"num_beams": 4}, {}, "num_beams: 4"),
        ({"do_sample": True}, {}, "without a temperature"),
        ({"no_such_thing": 1}, {}, "no_such_thing: 1"),
        ({}, {"no_repeat_ngram_size": 3}, "generation_config.json of the model asks for no_repeat_ngram_size: 3"),
    ],
)
def test_what_engines_do_not_do_is_refused(wished: dict[str, Any], defaults: dict[str, Any], said: str) -> None:
    with pytest.raises(NotPossible, match=said):
        sampling_of(wished, defaults)


def test_equal_requests_are_one_row_and_every_task_has_a_hash_of_its_own(tmp_path: Path) -> None:
    sampling = {**sampling_of({}, {}), "max_tokens": 4, "stop": ["\n"]}
    first = HarnessRequest(array("i", [1, 2, 3]), 2, prompt="a", continuation="b")
    second = HarnessRequest(array("i", [1, 2]), 0, json.dumps(sampling), prompt="a")
    recorded = Recorded()
    for task in ("one", "two"):
        recorded.add(first, task, 0)
        recorded.add(HarnessRequest(first.ids, 1), task, 1)
        recorded.add(second, task, 2)
    recorded.add(first, "two", 3)
    assert len(recorded.requests) == 3
    assert recorded.asked_by[0] == ("one", 0)
    assert recorded.contents["one"] != recorded.contents["two"]
    recorded.write(tmp_path / "requests.parquet")
    assert keys_in(tmp_path / "requests.parquet") == list(recorded.places)


def test_a_row_is_the_request_to_an_engine() -> None:
    evaluate = asked_of("key", {"ids": [5, 6, 7], "counted": 2, "sampling": ""}, None)
    assert isinstance(evaluate, Evaluate)
    assert (evaluate.tokens.counted, evaluate.greedy) == ([False, True, True], True)
    sampling = {**sampling_of({}, {}), "max_tokens": 4, "stop": ["\n"]}
    generate = asked_of("key", {"ids": [5], "counted": 0, "sampling": json.dumps(sampling)}, 3)
    assert isinstance(generate, Generate)
    assert generate.sampling is not None
    assert (generate.sampling.stop, generate.seed) == (["\n"], 3)


def test_figures_have_the_names_and_errors_of_the_harness() -> None:
    results = {
        "gsm8k": {
            "alias": "gsm8k",
            "sample_len": 100,
            "exact_match,strict-match": 0.5,
            "exact_match_stderr,strict-match": 0.05,
            "exact_match,none": 0.25,
        },
        "small": {"sample_len": 20, "acc,none": 1.0, "acc_stderr,none": 0.1, "strange,none": float("nan")},
    }
    values, intervals, errors, strange = _figures_in(results)
    assert values == {"gsm8k/exact_match/strict-match": 0.5, "gsm8k/exact_match": 0.25, "small/acc": 1.0}
    assert intervals == {"gsm8k/exact_match/strict-match": pytest.approx((0.402, 0.598), abs=1e-4)}
    assert errors == {"gsm8k/exact_match/strict-match": 0.05, "small/acc": 0.1}
    assert strange == ["small/strange"]


@pytest.mark.parametrize(
    ("name", "higher"), [("arc_easy/acc", True), ("gsm8k/exact_match/strict-match", True), ("wikitext/word_perplexity", False)]
)
def test_the_direction_of_a_figure_is_that_of_its_metric(name: str, higher: bool) -> None:
    figure = harness_figure(name)
    assert figure is not None
    assert figure.higher_is_better == higher


@pytest.mark.parametrize("name", ["exact_match", "mine/of_my_own", "arc_easy"])
def test_other_figures_have_none(name: str) -> None:
    assert harness_figure(name) is None


def test_outputs_of_the_harness_are_not_compared_row_by_row(tmp_path: Path) -> None:
    from tuneyard.api import BadInput
    from tuneyard.scoring.paired import compare
    from tuneyard.scoring.parts import Layout
    from tuneyard.scoring.plan import agree
    from tuneyard.storage import open_store

    settings = {"rows": 0, "generation": {}, "metrics": [], "data": {"lmEval": {"tasks": ["arc_easy"]}}}
    agree(open_store(str(tmp_path)), Layout(0, 1), settings)
    with pytest.raises(BadInput, match="whose figures are not of single rows"):
        compare(str(tmp_path), str(tmp_path), names=("one", "other"))


ROWS = [{"question": f"say {n}", "choices": ["a", "b"], "right": n % 2} for n in range(4)]
CHOICES: dict[str, Any] = {
    "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": "rows.jsonl"}},
    "test_split": "test",
    "output_type": "multiple_choice",
    "doc_to_text": "question",
    "doc_to_choice": "choices",
    "doc_to_target": "right",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of own tasks with the task `good`, in which this process runs as that of the harness does."""
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    monkeypatch.chdir(tmp_path)
    # As HF_HUB_OFFLINE=1, which libraries read when they are loaded. Without it, a data set that is not here is asked for again and again.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    write(tmp_path, good={})
    return tmp_path


def write(folder: Path, **tasks: dict[str, Any]) -> None:
    for name, task in tasks.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump({"task": name, **CHOICES, **task}))


def refusal(names: list[str], folder: Path, fewshot: int | None = None) -> str:
    from tuneyard.scoring.harness.tasks import loaded

    with pytest.raises(Unusable) as refused:
        loaded(names, folder, fewshot)
    assert refused.value.next_step
    return f"{refused.value.cause}; {refused.value.next_step}"


def test_a_group_of_own_tasks_needs_no_index_of_all_tasks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tuneyard.scoring.harness import tasks

    write(folder, other={})
    (folder / "both.yaml").write_text(yaml.safe_dump({"group": "both", "task": ["good", "other"]}))
    asked = []

    def index(**how: Any) -> Any:
        asked.append(how)
        return _manager(**how)

    _manager = tasks.TaskManager
    monkeypatch.setattr(tasks, "TaskManager", index)
    found, _ = tasks.loaded(["both"], folder, None)
    assert (sorted(found["tasks"]), list(found["groups"])) == (["good", "other"], ["both"])
    assert [each["include_defaults"] for each in asked] == [False]


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({"doc_to_image": "question"}, "shows images or sounds"),
        ({"unsafe_code": True}, "runs code that the model writes"),
        ({"dataset_path": "nobody/nothing"}, "the data of task bad cannot be had"),
        ({"dataset_kwargs": {"data_files": {"test": "none.jsonl"}}}, "the data of task bad cannot be had"),
        ({"output_type": "guess"}, "task bad cannot be loaded"),
        ({"doc_to_text": "{{ no_such_column }}"}, "task bad cannot be loaded"),
    ],
)
def test_a_task_that_cannot_be_scored_says_why(task: dict[str, Any], said: str, folder: Path) -> None:
    write(folder, bad=task)
    assert said in refusal(["good", "bad"], folder)


def test_a_task_without_rows_says_so(folder: Path) -> None:
    (folder / "functions.py").write_text("def none(rows):\n    return rows.select([])\n")
    (folder / "bad.yaml").write_text(yaml.safe_dump({"task": "bad", **CHOICES}) + "process_docs: !function functions.none\n")
    assert "task bad has no document" in refusal(["bad"], folder)


def test_a_broken_file_is_named(folder: Path) -> None:
    (folder / "bad.yaml").write_text("task: [bad\n")
    assert "bad.yaml of data.lmEval.folder cannot be read" in refusal(["good"], folder)


def test_a_folder_without_tasks_says_so(folder: Path) -> None:
    (folder / "good.yaml").unlink()
    assert "no file that ends with .yaml" in refusal(["good"], folder)


def test_more_examples_than_there_are_is_refused_with_the_most_that_work(folder: Path) -> None:
    write(folder, good={"fewshot_split": "test"})
    said = refusal(["good"], folder, fewshot=4)
    assert "has 4 examples to draw from, and its prompts need 5" in said
    assert "at most 3" in said


def test_a_task_that_says_zero_examples_keeps_it_with_a_note(folder: Path) -> None:
    from tuneyard.scoring.harness.tasks import loaded

    write(folder, good={"num_fewshot": 0})
    found, notes = loaded(["good"], folder, 2)
    assert found["tasks"]["good"].config.num_fewshot == 0
    assert "num_fewshot: 0" in notes[0]
