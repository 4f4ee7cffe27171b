"""Whose an output folder is, and which of its tasks are done."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuneyard.api import BadInput, JobSpec
from tuneyard.runtime.output import JobOutput, default_output, fingerprint


def job(name: str = "first", **train: object) -> JobSpec:
    task = {"name": "t", "train": {"model": {"name": "m"}, "data": {"source": "d.jsonl"}, **train}}
    return JobSpec.model_validate({"metadata": {"name": name}, "spec": {"tasks": [task]}})


def test_an_occupied_folder_is_refused_unless_resumed(tmp_path: Path) -> None:
    output = JobOutput(str(tmp_path / "out"))
    output.claim(job(), resume=False)
    with pytest.raises(BadInput, match="holds a job already") as error:
        output.claim(job(), resume=False)
    assert "--resume" in error.value.next_step
    output.claim(job(), resume=True)


def test_a_folder_of_another_job_is_refused(tmp_path: Path) -> None:
    JobOutput(str(tmp_path)).claim(job("first"), resume=False)
    with pytest.raises(BadInput, match="holds the job first, not second"):
        JobOutput(str(tmp_path)).claim(job("second"), resume=True)


def test_a_folder_with_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(BadInput, match="not empty"):
        JobOutput(str(tmp_path)).claim(job(), resume=True)


def test_a_result_is_there_once_finished(tmp_path: Path) -> None:
    output, task = JobOutput(str(tmp_path)), job().spec.tasks[0]
    assert output.finished(task) is None
    output.begin(task)
    assert output.finished(task) is None
    output.finish("t", {"steps": 3})
    assert output.finished(task) == {"steps": 3}


def test_results_of_other_settings_are_not_taken(tmp_path: Path) -> None:
    output = JobOutput(str(tmp_path))
    output.begin(job(steps=3).spec.tasks[0])
    with pytest.raises(BadInput, match="begun with other settings"):
        output.begin(job(steps=4).spec.tasks[0])
    output.finish("t", {})
    with pytest.raises(BadInput, match="begun with other settings"):
        output.finished(job(steps=4).spec.tasks[0])


def test_layout_may_change_between_runs() -> None:
    assert fingerprint(job(strategy={"zero": 3}).spec.tasks[0]) == fingerprint(job(checkpoint={"keep": 9}).spec.tasks[0])
    assert fingerprint(job(batch={"global": 8, "micro": 2}).spec.tasks[0]) == fingerprint(job(batch={"global": 8}).spec.tasks[0])
    assert fingerprint(job(batch={"global": 8}).spec.tasks[0]) != fingerprint(job(batch={"global": 16}).spec.tasks[0])
    assert fingerprint(job(seed=1).spec.tasks[0]) != fingerprint(job(seed=2).spec.tasks[0])


def test_two_runs_never_write_to_one_folder(tmp_path: Path) -> None:
    with JobOutput(str(tmp_path)).locked(), pytest.raises(BadInput, match="another run is writing"), JobOutput(str(tmp_path)).locked():
        pass
    with JobOutput(str(tmp_path)).locked():
        pass


def test_default_output_counts_up_and_resumes_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert default_output(job(), resume=False) == "runs/first-1"
    (tmp_path / "runs" / "first-1").mkdir(parents=True)
    assert default_output(job(), resume=False) == "runs/first-2"
    assert default_output(job(), resume=True) == "runs/first-1"
