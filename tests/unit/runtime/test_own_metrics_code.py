"""The code of a score task's own metrics: found beside the JobSpec, checked without running it, shipped, and noticed when it changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tuneyard.api import BadInput, JobSpec
from tuneyard.api.local_files import local_files
from tuneyard.cluster.shipping import CannotShip, shipment_of
from tuneyard.runtime.checks import _check_own_metrics
from tuneyard.runtime.inputs import changes, inputs_of
from tuneyard.runtime.references import resolved


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my_metrics.py").write_text("import words\n\ndef rate(output, references, row):\n    return 1\n\nraise SystemExit\n")
    (tmp_path / "words.py").write_text("")
    (tmp_path / "rows.jsonl").write_text('{"prompt": "q"}\n')
    return tmp_path


def manifest(*own: str, **score: Any) -> dict[str, Any]:
    body = {"model": {"name": "owner/m"}, "data": {"source": "s3://b/rows.jsonl"}, "ownMetrics": list(own), **score}
    spec = {"tasks": [{"name": "judge", "score": body}], "storage": {"output": "s3://b/out"}}
    return {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "j"}, "spec": spec}


def job(*own: str, **score: Any) -> JobSpec:
    return JobSpec.model_validate(manifest(*own, **score))


@pytest.mark.parametrize(
    ("own", "says"),
    [("my_metrics:rat", "did you mean rate"), ("no_such_metrics:rate", "there is no module no_such_metrics"), ("my_metrics:rate", "")],
)
def test_functions_are_looked_for_before_anything_starts(folder: Path, own: str, says: str) -> None:
    score = job(own).spec.tasks[0].score
    assert score is not None
    if not says:
        _check_own_metrics("judge", score, folder)
        return
    with pytest.raises(BadInput, match=says):
        _check_own_metrics("judge", score, folder)


def test_engines_get_the_folder_beside_the_jobspec_and_none_for_installed_modules(folder: Path) -> None:
    found = [resolved(job(own).spec.tasks[0], folder, {})[0].score for own in ("my_metrics:rate", "statistics:mean")]

    assert [score.metrics_dir for score in found if score is not None] == [str(folder), None]


def test_submit_ships_modules_and_their_imports_and_names_the_folder(folder: Path) -> None:
    shipped = shipment_of(manifest("my_metrics:rate:lower"), folder)

    (parcel,) = shipped.parcels
    assert sorted(parcel.files) == ["my_metrics.py", "words.py"]
    assert shipped.manifest["spec"]["tasks"][0]["score"]["metricsDir"] == shipped.uri(parcel)


def test_submit_refuses_functions_that_are_not_there(folder: Path) -> None:
    with pytest.raises(CannotShip) as refused:
        shipment_of(manifest("my_metrics:rat", "no_such_metrics:one"), folder)

    assert "spec.tasks[0].score.ownMetrics[0]: my_metrics.py has no rat (did you mean rate?)" in refused.value.cause
    assert "spec.tasks[0].score.ownMetrics[1]: no module no_such_metrics beside the JobSpec" in refused.value.cause


def test_kubectl_is_told_that_nothing_is_shipped() -> None:
    found = {(file.path[-1], file.text, file.what) for own in ({}, {"metricsDir": "code"}) for file in local_files(job("m:f", **own).spec)}

    assert found == {(0, "m.py", "program"), ("metricsDir", "code", "folder")}


def test_changed_code_is_other_input(folder: Path) -> None:
    task = job("my_metrics:rate", data={"source": "rows.jsonl"}).spec.tasks[0]
    before = inputs_of(task, folder)
    (folder / "words.py").write_text("x = 1\n")

    assert changes(before, inputs_of(task, folder)) == ["score.ownMetrics: words.py: 0 -> 6 bytes"]
