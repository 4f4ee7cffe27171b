"""Which model a finished job has made, as its output folder tells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tuneyard.api import BadInput
from tuneyard.runtime.trained import Trained, find_trained, name_of


def output(folder: Path, results: dict[str, dict[str, Any] | None], **kinds: str) -> str:
    """A job's output whose train tasks have these results; None: it has not ended."""
    tasks = {name: {"kind": kinds.get(name, "train"), "status": "succeeded"} for name in results}
    (folder / "report.json").write_text(json.dumps({"job": "j", "status": "succeeded", "tasks": tasks}))
    for name, result in results.items():
        if result is not None:
            (folder / name).mkdir()
            (folder / name / "result.json").write_text(json.dumps(result))
    return str(folder)


def result(**values: Any) -> dict[str, Any]:
    return {"model_uri": None, "adapter_uri": None, "merged_uri": None, "base_model_uri": "org/base", **values}


def test_an_adapter_lies_in_the_folder_wherever_that_was_copied(tmp_path: Path) -> None:
    out = output(tmp_path, {"train": result(adapter_uri="/elsewhere/train/model")})
    assert find_trained(out) == Trained("train", "org/base", f"{out}/train/model")


def test_merged_weights_need_no_adapter(tmp_path: Path) -> None:
    out = output(tmp_path, {"train": result(adapter_uri="/o/train/model", merged_uri="/o/train/merged")})
    assert find_trained(out) == Trained("train", f"{out}/train/merged", None, base_uri="org/base")


def test_the_last_train_task_that_has_ended_counts(tmp_path: Path) -> None:
    out = output(tmp_path, {"base": result(model_uri="x"), "tune": result(model_uri="x"), "later": None, "judge": {}}, judge="score")
    assert find_trained(out).name == "tune"
    assert find_trained(out, "base").model_uri == f"{out}/base/model"


def test_a_folder_without_a_model_says_why(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"holds no report\.json"):
        find_trained(str(tmp_path))
    out = output(tmp_path, {"train": None})
    with pytest.raises(BadInput, match="a train task has not ended yet, or failed"):
        find_trained(out)
    with pytest.raises(BadInput, match="has no train task tune: it has train"):
        find_trained(out, "tune")
    (tmp_path / "report.json").write_text("{}")
    with pytest.raises(BadInput, match="damaged"):
        find_trained(out)


def test_a_task_a_model_folder_an_adapter_and_a_name_are_found_too(tmp_path: Path) -> None:
    out = output(tmp_path, {"train": result(model_uri="x", base_revision="main")})
    weights = tmp_path / "train" / "model"
    weights.mkdir()
    (weights / "config.json").write_text("{}")
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "org/base", "r": 4, "peft_type": "LORA"}))
    (adapter / "adapter_model.bin").write_bytes(b"x")

    of_run = find_trained(out)

    assert (of_run.base_uri, of_run.base_revision) == ("org/base", "main"), "what whole weights were trained from"
    assert find_trained(f"{out}/train") == of_run
    assert find_trained(str(weights)) == of_run
    assert find_trained(str(adapter)) == Trained("adapter", "org/base", str(adapter))
    assert find_trained("org/base") == Trained("org/base", "org/base", None)


def test_random_weights_have_no_base(tmp_path: Path) -> None:
    out = output(tmp_path, {"train": result(model_uri="x")})
    (tmp_path / "train" / "task.json").write_text(json.dumps({"task": {"train": {"model": {"init": "scratch"}}}}))
    assert find_trained(out).base_uri is None


def test_what_is_no_language_model_is_refused(tmp_path: Path) -> None:
    out = output(tmp_path, {"train": result(model_uri="x", details={"program": "mine:Program"}), "judge": {"rows": 3}}, judge="score")
    with pytest.raises(BadInput, match="training program, which answers no prompts"):
        find_trained(out)
    with pytest.raises(BadInput, match="trained no language model"):
        find_trained(f"{out}/judge")
    with pytest.raises(BadInput, match="not the output of a job"):
        find_trained("org/base", "train")
    with pytest.raises(BadInput, match="there is no folder"):
        find_trained(str(tmp_path / "gone"))
    (tmp_path / "ranker.json").write_text("{}")
    (tmp_path / "report.json").unlink()
    with pytest.raises(BadInput, match="holds a ranker"):
        find_trained(str(tmp_path))


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("/r/first", "first"),
        ("/r/first/train/model", "train"),
        ("/r/first/train/merged/", "train"),
        ("s3://b/r/first", "first"),
        ("o/name", "o/name"),
    ],
)
def test_a_model_is_called_after_the_folder_that_people_have_named(uri: str, name: str) -> None:
    assert name_of(uri) == name
