"""Which model a finished job has made, as its output folder tells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tuneyard.api import BadInput
from tuneyard.runtime.trained import Trained, find_trained


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
    assert find_trained(out) == Trained("train", f"{out}/train/merged", None)


def test_the_last_train_task_that_has_ended_counts(tmp_path: Path) -> None:
    out = output(tmp_path, {"base": result(model_uri="x"), "tune": result(model_uri="x"), "later": None, "judge": {}}, judge="score")
    assert find_trained(out).task == "tune"
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
