"""A training program as a JobSpec names it: found and judged by its source, which is read and never run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.builders.programs import write_program

from tuneyard.api import JobSpec, TrainTask
from tuneyard.api.local_files import local_files
from tuneyard.api.programs import missing_object, module_files
from tuneyard.cluster.shipping import CannotShip, shipment_of


def job(tasks: list[dict[str, Any]] | None = None, **train: Any) -> dict[str, Any]:
    own = {"name": "train", "train": {"program": "line:Line", "data": {"source": "s3://b/rows.jsonl"}, **train}}
    storage = {"output": "s3://b/out"}
    return {"metadata": {"name": "j"}, "kind": "JobSpec", "spec": {"storage": storage, "tasks": [own, *(tasks or [])]}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_program(tmp_path)
    (tmp_path / "rows.jsonl").unlink()
    source = (tmp_path / "line.py").read_text()
    (tmp_path / "line.py").write_text(f"from pieces.shapes import width\nimport boom\n{source}")
    (tmp_path / "pieces").mkdir()
    (tmp_path / "pieces" / "shapes.py").write_text("width = 2\n")
    (tmp_path / "boom.py").write_text("raise SystemExit('this was run')\n")
    (tmp_path / "other.py").write_text("")
    return tmp_path


def test_a_program_needs_no_model_and_all_else_does() -> None:
    task = TrainTask.model_validate({"program": "line:Line", "data": {"source": "rows.jsonl"}})
    assert not task.model.is_given
    assert JobSpec.model_validate(job()).spec.tasks[0].to_yaml_dict()["train"] == job()["spec"]["tasks"][0]["train"]
    with pytest.raises(ValidationError, match="required field is missing"):
        TrainTask.model_validate({"data": {"source": "rows.jsonl"}})
    for wrong in ("line", "line:", ":Line", "a/line:Line"):
        with pytest.raises(ValidationError, match="program"):
            TrainTask.model_validate({"program": wrong, "data": {"source": "rows.jsonl"}})


def test_no_task_scores_or_fine_tunes_what_a_program_has_trained_and_a_search_may_tune_it() -> None:
    after: list[dict[str, Any]] = [
        {"name": "score", "score": {"model": {"from": "train"}, "data": {"source": "s3://b/x.jsonl"}}},
        {"name": "more", "train": {"model": {"from": "train"}, "data": {"source": "s3://b/x.jsonl"}}},
    ]
    for task in after:
        with pytest.raises(ValidationError, match="trains by a program"):
            JobSpec.model_validate(job([task]))
    JobSpec.model_validate(job([{"name": "tune", "tune": {"task": "train", "space": {"batch.micro": [4], "strategy.zero": [0, 1]}}}]))
    for foreign in ("model.attention", "strategy.recompute", "optimizer.name", "data.pack"):
        with pytest.raises(ValidationError, match="cannot be tuned for the train task train by a program"):
            JobSpec.model_validate(job([{"name": "tune", "tune": {"task": "train", "space": {foreign: [True]}}}]))
    JobSpec.model_validate(
        job([{"name": "more", "train": {"program": "line:Line", "model": {"from": "train"}, "data": {"from": "train"}}}])
    )


def test_the_module_and_what_it_imports_are_shipped_without_being_run(folder: Path) -> None:
    shipment = shipment_of(job(), folder)

    (parcel,) = shipment.parcels
    assert sorted(parcel.files) == ["boom.py", "line.py", "pieces/shapes.py"]
    assert shipment.manifest["spec"]["tasks"][0]["train"]["programDir"] == shipment.uri(parcel)
    assert not list(local_files(JobSpec.model_validate(shipment.manifest).spec))
    assert [file.text for file in local_files(JobSpec.model_validate(job()).spec)] == ["line.py"]  # what kubectl could not send


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("line:Lime", "line.py has no Lime (did you mean Line?)"),
        ("lime:Line", "no module lime beside the JobSpec"),
        ("line.py:Line", "a module is named without .py: write line:Line"),
        ("broken:Line", "broken.py, line 1 is no Python"),
    ],
)
def test_a_program_that_is_not_there_is_not_submitted(program: str, said: str, folder: Path) -> None:
    (folder / "broken.py").write_text("class Line(:\n")

    with pytest.raises(CannotShip) as raised:
        shipment_of(job(program=program), folder)

    assert said in raised.value.cause


def test_objects_are_found_however_they_are_bound(folder: Path) -> None:
    (folder / "ways.py").write_text(
        "from line import Line\nimport line as other\n"
        "if True:\n    a = Line()\nelse:\n    b = 1\ntry:\n    c = 1\nexcept OSError:\n    d = 2\n"
    )
    assert [missing_object(f"ways:{name}", folder) for name in ("Line", "other", "a", "b", "c", "d")] == [None] * 6
    assert missing_object("ways:e", folder) == "ways.py has no e"
    (folder / "stars.py").write_text("from line import *\n")
    assert missing_object("stars:Line", folder) is None
    assert module_files("torch:nn", folder) == set()
