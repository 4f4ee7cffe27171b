"""Whose an output folder is, and which of its tasks are done."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tuneyard.api import BadInput, JobSpec, Task
from tuneyard.runtime.inputs import _summary, changes, inputs_of
from tuneyard.runtime.output import JobOutput, _settings_changed, default_output, fingerprint


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
    (tmp_path / "_shipped").mkdir()
    JobOutput(str(tmp_path)).claim(job(), resume=True)
    (tmp_path / "job.json").unlink()
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(BadInput, match="not empty"):
        JobOutput(str(tmp_path)).claim(job(), resume=True)


def test_a_result_is_there_once_finished(tmp_path: Path) -> None:
    output, task = JobOutput(str(tmp_path)), job().spec.tasks[0]
    assert output.finished(task) is None
    output.begin(task, {})
    assert output.finished(task) is None
    output.finish("t", {"steps": 3})
    assert output.finished(task) == {"steps": 3}


def test_results_of_other_settings_are_not_taken(tmp_path: Path) -> None:
    output = JobOutput(str(tmp_path))
    output.begin(job(seed=3).spec.tasks[0], {})
    with pytest.raises(BadInput, match=r"started with other settings than the JobSpec has now \(train.seed: 3 -> 4; see .*/t/task.json\)"):
        output.begin(job(seed=4).spec.tasks[0], {})
    output.finish("t", {})
    with pytest.raises(BadInput, match="started with other settings"):
        output.finished(job(seed=4).spec.tasks[0])


@pytest.mark.parametrize("kind", ["train", "score"])
def test_records_from_before_names_kept_hf_are_of_the_same_model(kind: str, tmp_path: Path) -> None:
    def task(name: str, **more: object) -> Task:
        body = {"model": {"name": name}, "data": {"source": "d.jsonl"}} | more
        return Task.model_validate({"name": "t", kind: body | ({"metrics": ["perplexity"]} if kind == "score" else {"steps": 3})})

    output = JobOutput(str(tmp_path))
    output.begin(task("acme/bot"), {})
    output.begin(task("hf://acme/bot"), {})
    with pytest.raises(BadInput, match=r"model.name: .*acme/bot -> .*acme/cat"):
        output.begin(task("hf://acme/cat"), {})
    if kind == "train":
        output.begin(task("acme/bot", steps=5), {})
        output.begin(task("hf://acme/bot", steps=7), {})


def test_a_job_with_other_settings_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    output = JobOutput(str(tmp_path))
    output.claim(job(seed=3), resume=False)
    output.check_settings(job(seed=4), {"t"})  # nothing was begun
    output.begin(job(seed=3).spec.tasks[0], {})
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(BadInput, match="started with other settings"):
        output.check_settings(job(seed=4), {"t"})
    output.check_settings(job(seed=3), {"t"})
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_a_started_task_takes_changes_that_a_resume_takes_and_a_finished_one_does_not(tmp_path: Path) -> None:
    output, longer = JobOutput(str(tmp_path)), job(steps=4, optimizer={"learningRate": 1e-3})
    faster = longer.spec.tasks[0]
    output.begin(job(steps=3).spec.tasks[0], {})

    output.check_settings(longer, {"t"})
    output.begin(faster, {})
    output.finish("t", {})

    assert output.finished(faster) == {}
    with pytest.raises(BadInput, match=r"train.steps: 4 -> 3"):
        output.finished(job(steps=3, optimizer={"learningRate": 1e-3}).spec.tasks[0])


def test_a_finished_task_goes_on_to_more_steps_and_what_was_made_of_it_runs_again(tmp_path: Path) -> None:
    def whole(steps: int, *more: dict[str, object], **train: object) -> JobSpec:
        first = job(steps=steps, **train).to_yaml_dict()["spec"]["tasks"][0]
        judge = {"name": "judge", "score": {"model": {"from": "t"}, "data": {"source": "d.jsonl", "prompt": "text"}}}
        count = {"name": "count", "process": {"command": ["wc", "$TUNEYARD_OUTPUT"]}, "dependsOn": ["judge"]}
        return JobSpec.model_validate({"metadata": {"name": "first"}, "spec": {"tasks": [first, judge, count, *more]}})

    output, before, longer = JobOutput(str(tmp_path)), whole(3), whole(4, optimizer={"learningRate": 1e-3})
    names = {task.name for task in before.spec.tasks}
    for task in before.spec.tasks:
        output.begin(task, {})
        output.finish(task.name, {"of": 3})
    output.store.put("judge/parts/0.parquet", b"answers of the model as it was")
    with pytest.raises(BadInput, match="task t has ended, and has no checkpoint left to go on from") as lost:
        output.check_settings(longer, names)
    assert f"model: {{name: {tmp_path}/t/model}}" in lost.value.next_step
    output.store.put("t/checkpoints/step-3.1/manifest.json", b"{}")

    output.check_settings(longer, names)
    assert not output.goes_on(before.spec.tasks[0])
    assert output.goes_on(longer.spec.tasks[0])
    assert output.finished(longer.spec.tasks[0]) is None
    output._put_json(
        "t/task.json", json.loads(output.store.get("t/task.json")) | {"inputs": {"train.data": _summary({"d.jsonl": [9, "x"]})}}
    )
    with pytest.raises(BadInput, match="task t was started with other data"):
        output.reopen(longer.spec.tasks[0], longer, {"train.data": _summary({"d.jsonl": [8, "y"]})})
    assert output.finished(before.spec.tasks[1]) == {"of": 3}, "nothing was removed"
    assert output.reopen(longer.spec.tasks[0], longer, {}) == ["judge", "count"]
    assert [output.finished(task) for task in longer.spec.tasks] == [None] * 3
    assert not output.store.has_files("judge")
    output.begin(longer.spec.tasks[0], {})
    assert not output.goes_on(longer.spec.tasks[0]), "a kill from here on leaves a task that is resumed"

    output.finish("t", {"of": 4})
    preferred = {"name": "preferred", "train": {"model": {"from": "t"}, "data": {"source": "p.jsonl"}, "steps": 1}}
    both = whole(5, preferred, optimizer={"learningRate": 1e-3})
    output.begin(both.spec.tasks[-1], {})
    with pytest.raises(BadInput, match="task t has more steps than it had, and task preferred has begun with its model as it was"):
        output.check_settings(both, {*names, "preferred"})


@pytest.mark.parametrize(
    ("before", "now", "longer"),
    [
        ({"steps": 3}, {"steps": 4}, True),
        ({"epochs": 3}, {"epochs": 4.5}, True),
        ({"steps": 4}, {"steps": 3}, False),
        ({"steps": 3}, {"epochs": 4}, False),
        ({"steps": 3, "seed": 1}, {"steps": 4, "seed": 2}, False),
    ],
)
def test_which_finished_tasks_go_on(before: dict[str, object], now: dict[str, object], longer: bool, tmp_path: Path) -> None:
    output = JobOutput(str(tmp_path))
    output.begin(job(**before).spec.tasks[0], {})
    output.finish("t", {})
    assert output.goes_on(job(**now).spec.tasks[0]) == longer


def test_a_finished_task_that_is_to_be_merged_after_all_is_merged_by_the_command(tmp_path: Path) -> None:
    output = JobOutput(str(tmp_path))
    output.begin(job(method={"lora": {}}).spec.tasks[0], {})
    output.finish("t", {})

    with pytest.raises(BadInput, match="has ended without the merged model") as error:
        output.finished(job(method={"lora": {"merge": True}}).spec.tasks[0])
    assert f"tuneyard merge {tmp_path} --task t --out FOLDER" in error.value.next_step


def test_results_of_other_data_are_not_taken(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text('{"text": "one"}\n')
    output, task = JobOutput(str(tmp_path / "out")), job().spec.tasks[0]
    output.begin(task, inputs_of(task, tmp_path))
    output.finish("t", {"steps": 3})

    (tmp_path / "d.jsonl").write_text('{"text": "two"}\n')
    with pytest.raises(BadInput, match=r"started with other data .*\ntrain.data: d.jsonl: same size, other content") as error:
        output.finished(task, inputs_of(task, tmp_path))
    assert "restore the data to resume, or start over in another output" in error.value.next_step
    (tmp_path / "d.jsonl").write_text('{"text": "three"}\n')
    with pytest.raises(BadInput, match=r"train.data: d.jsonl: 16 -> 18 bytes"):
        output.begin(task, inputs_of(task, tmp_path))

    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "d.jsonl").write_text('{"text": "one"}\n')
    assert output.finished(task, inputs_of(task, tmp_path / "elsewhere")) == {"steps": 3}, "the same data in another folder is the same"


def test_what_has_changed_in_a_folder_of_data_is_told_file_by_file(tmp_path: Path) -> None:
    task = job(data={"source": "parts"}).spec.tasks[0]
    (tmp_path / "parts").mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / "parts" / f"{name}.jsonl").write_text('{"text": "one"}\n')
    before = inputs_of(task, tmp_path)
    assert changes(before, inputs_of(task, tmp_path)) == []
    (tmp_path / "parts" / "a.jsonl").unlink()
    (tmp_path / "parts" / "b.jsonl").write_text('{"text": "four"}\n')
    (tmp_path / "parts" / "d.jsonl").write_text('{"text": "one"}\n')
    assert changes(before, inputs_of(task, tmp_path)) == ["train.data: a.jsonl is gone; d.jsonl is new; b.jsonl: 16 -> 17 bytes"]
    assert changes({}, inputs_of(task, tmp_path)) == [], "an output of an older version says nothing of data"


def test_of_many_files_the_last_one_counts_too(tmp_path: Path) -> None:
    task = job(data={"source": "parts"}).spec.tasks[0]
    (tmp_path / "parts").mkdir()
    for number in range(250):
        (tmp_path / "parts" / f"{number:03}.jsonl").write_text('{"text": "one"}\n')
    before = inputs_of(task, tmp_path)
    (tmp_path / "parts" / "249.jsonl").write_text('{"text": "two"}\n')
    assert changes(before, inputs_of(task, tmp_path)) != []


def process(*command: str, **fields: str) -> Task:
    return Task.model_validate({"name": "prepare", "process": {"command": list(command), **fields}})


def test_results_of_other_scripts_are_not_taken(tmp_path: Path) -> None:
    (tmp_path / "prepare.py").write_text("import words\n")
    (tmp_path / "words.py").write_text("WORDS = 1\n")
    output, task = JobOutput(str(tmp_path / "out")), process("python", "prepare.py", "--log", "log.txt")
    output.begin(task, inputs_of(task, tmp_path))
    output.finish("prepare", {"status": "succeeded"})
    (tmp_path / "log.txt").write_text("what the command wrote itself")
    assert output.finished(task, inputs_of(task, tmp_path)) == {"status": "succeeded"}

    (tmp_path / "words.py").write_text("WORDS = 2\n")
    with pytest.raises(BadInput, match=r"started with other scripts .*\nprocess.command: words.py: same size, other content") as error:
        output.finished(task, inputs_of(task, tmp_path))
    assert "restore the scripts to resume, or start over in another output: storage.output, or --out DIR" in error.value.next_step


def test_a_process_that_failed_goes_on_with_a_mended_script(tmp_path: Path) -> None:
    (tmp_path / "prepare.sh").write_text("exit 1\n")
    output = JobOutput(str(tmp_path / "out"))
    for command in (["sh", "prepare.sh"], ["sh", "prepare.sh"], ["bash", "prepare.sh"]):
        output.begin(process(*command), inputs_of(process(*command), tmp_path))
        (tmp_path / "prepare.sh").write_text("exit 0\n")


@pytest.mark.parametrize(
    ("command", "counted"),
    [
        (["./prepare", "rows.csv", "out/"], ["prepare"]),
        (["python", "-m", "pack"], ["pack/__init__.py"]),
        (["sh", "-c", "python a.py > log.txt; sh b.sh"], ["a.py", "b.sh"]),
        (["python", "{}/a.py", "/etc/passwd"], ["a.py"]),
        (["echo", "hello"], []),
    ],
)
def test_scripts_count_and_other_files_do_not(tmp_path: Path, command: list[str], counted: list[str]) -> None:
    for name in ("a.py", "b.sh", "rows.csv", "log.txt", "pack/__init__.py", "pack/rows.csv", "out/made.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1\n")
    (tmp_path / "prepare").write_text("#!/usr/bin/env python\n")

    found = inputs_of(process(*(word.format(tmp_path) for word in command)), tmp_path)

    assert list(found.get("process.command", {}).get("each", {})) == counted


def test_scripts_of_a_working_dir(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "a.py").write_text("1\n")

    assert list(inputs_of(process("python", "a.py", workingDir="tools"), tmp_path)["process.command"]["each"]) == ["a.py"]
    assert inputs_of(process("python", "a.py", workingDir="s3://models/_shipped/1/tools"), tmp_path) == {}


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


def test_of_a_list_the_item_that_differs_is_shown() -> None:
    steps = [{"op": "normalize", "inputs": ["x"], "output": "x"}, {"op": "clamp", "inputs": ["y"], "output": "y", "low": 0, "high": 1}]
    assert list(_settings_changed({"transforms": steps}, {"transforms": [{**steps[0], "mean": 1.0}, steps[1]]})) == [
        "transforms[0].mean: nothing -> 1.0"
    ]
