"""What is wrong before anything starts: exit code 2, one error with its next step, and no half-made output."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from tests.builders.models import write_chats
from tests.integration.runtime.conftest import WriteJob, read_report, train

from tuneyard.api import load_jobspec
from tuneyard.cli import main
from tuneyard.runtime.inputs import inputs_of
from tuneyard.runtime.output import JobOutput

PREPARE = {"name": "prepare", "process": {"command": ["sh", "-c", "cp chats.jsonl $TUNEYARD_OUTPUT/"]}}


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """stderr of a command that must exit with 2 and print nothing on stdout."""
    assert main([str(argument) for argument in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    return captured.err


def test_a_missing_data_file(write_job: WriteJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = write_job({"name": "tune", "train": train(data={"source": "chat.jsonl"})})
    error = refusal(capsys, "run", job, "--out", tmp_path / "out")
    assert "data of task tune" in error
    assert "chats.jsonl" in error, "what is near is named"
    assert not (tmp_path / "out").exists()


def test_a_column_that_is_not_there(write_job: WriteJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = write_job({"name": "tune", "train": train(data={"source": "chats.jsonl", "columns": {"messages": "mesages"}})})
    error = refusal(capsys, "run", job, "--out", tmp_path / "out")
    assert "data of task tune" in error
    assert "no column mesages" in error
    assert "next: did you mean messages?" in error
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_no_model(write_job: WriteJob, inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (inputs / "empty").mkdir(exist_ok=True)
    job = write_job({"name": "tune", "train": train(model={"name": "empty"})})
    error = refusal(capsys, "run", job, "--out", tmp_path / "out")
    assert "is not a model: it has no config.json" in error


def test_a_model_path_that_is_not_there(write_job: WriteJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = write_job({"name": "tune", "train": train(model={"name": "./modell"})})
    assert "there is no folder" in refusal(capsys, "run", job, "--out", tmp_path / "out")


def test_a_missing_secret(write_job: WriteJob, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_TOKEN", raising=False)
    reference = {"name": "NO_SUCH_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "NO_SUCH_TOKEN"}}}
    error = refusal(capsys, "run", write_job(PREPARE, env=[reference]), "--out", tmp_path / "out")
    assert "NO_SUCH_TOKEN" in error
    assert "export NO_SUCH_TOKEN=" in error


def test_another_sku(write_job: WriteJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = write_job({"name": "tune", "train": train(), "resources": {"sku": ["b200-192gb"]}})
    assert "asks for b200-192gb" in refusal(capsys, "run", job, "--out", tmp_path / "out")


def test_a_combination_that_cannot_work(write_job: WriteJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = write_job({"name": "tune", "train": train(strategy={"zero": 0, "offload": {"optimizer": "cpu"}})})
    assert "nearest that works" in refusal(capsys, "run", job, "--out", tmp_path / "out")


def test_a_tune_task_of_what_does_not_train(write_job: WriteJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = write_job(PREPARE, {"name": "search", "tune": {"task": PREPARE["name"]}})
    assert "which is no train, rank or score task" in refusal(capsys, "run", job, "--out", tmp_path / "out")


@pytest.mark.parametrize("address", ["nonsense", "ray://127.0.0.1:10001"], ids=["nonsense", "client"])
def test_an_address_that_cannot_be_one(address: str, write_job: WriteJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert address in refusal(capsys, "run", write_job(PREPARE), "--out", tmp_path / "out", "--ray", address)


def test_an_address_where_nothing_listens(write_job: WriteJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    error = refusal(capsys, "run", write_job(PREPARE), "--out", tmp_path / "out", "--ray", f"127.0.0.1:{port}")
    assert "nothing answers" in error
    assert "leave out --ray" in error


def test_a_port_that_another_program_holds(write_job: WriteJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        error = refusal(capsys, "run", write_job(PREPARE), "--out", tmp_path / "out", "--ray", address)
    assert f"no Ray cluster of this version answers at {address}" in error
    assert "another program may hold that port" in error


def test_a_process_job_runs_without_ray_and_is_not_run_twice(
    write_job: WriteJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job, out = write_job(PREPARE), tmp_path / "out"
    assert main(["run", str(job), "--out", str(out)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(out / "report.json")
    assert (out / "prepare/files/chats.jsonl").stat().st_size > 0
    assert read_report(out)["status"] == "succeeded"

    assert "holds a job already" in refusal(capsys, "run", job, "--out", out)
    assert main(["run", str(job), "--out", str(out), "--resume"]) == 0
    assert "prepare  done before, skipped" in capsys.readouterr().err


def test_a_result_of_other_data_is_not_taken(write_job: WriteJob, inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job, out, data = write_job({"name": "tune", "train": train(data={"source": "own.jsonl"})}), tmp_path / "out", inputs / "own.jsonl"
    write_chats(data)
    spec = load_jobspec(job)
    output = JobOutput(str(out))
    output.claim(spec, resume=False)
    output.begin(spec.spec.tasks[0], inputs_of(spec.spec.tasks[0], inputs))
    output.finish("tune", {"kind": "train", "status": "succeeded", "attempts": []})

    write_chats(data, count=65)
    assert main(["run", str(job), "--out", str(out), "--resume"]) == 2
    error = capsys.readouterr().err
    assert "task tune was started with other data than there is now" in error
    assert "train.data: own.jsonl: " in error
    assert "start over in another output" in error


def test_a_result_of_another_script_is_not_taken(
    write_job: WriteJob, inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script, out = inputs / "own.sh", tmp_path / "out"
    job = write_job({"name": "prepare", "process": {"command": ["sh", "own.sh"]}})
    script.write_text("exit 3\n")
    assert main(["run", str(job), "--out", str(out)]) == 1
    script.write_text("echo one > $TUNEYARD_OUTPUT/a\n")
    assert main(["run", str(job), "--out", str(out), "--resume"]) == 0, "a process that failed may be mended"
    script.write_text("echo two > $TUNEYARD_OUTPUT/a\n")
    capsys.readouterr()

    assert main(["run", str(job), "--out", str(out), "--resume"]) == 2
    error = capsys.readouterr().err
    assert "task prepare was started with other scripts than there are now" in error
    assert "process.command: own.sh: same size, other content" in error
    assert "restore the scripts to resume, or start over in another output" in error


def test_a_process_that_fails(write_job: WriteJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = write_job({"name": "prepare", "process": {"command": ["sh", "-c", "echo the disk is on fire; exit 7"]}})
    assert main(["run", str(job), "--out", str(tmp_path / "out")]) == 1
    captured = capsys.readouterr()
    assert captured.out.splitlines()[-1] == str(tmp_path / "out" / "report.json")
    assert "exited 7" in captured.err
    assert "the disk is on fire" in captured.err
    report = read_report(tmp_path / "out")
    assert report["status"] == "failed"
    assert "exited 7" in report["message"]
    assert report["tasks"]["prepare"]["failure"] == "UserError"
    assert not (tmp_path / "out/prepare/result.json").exists()
    assert (tmp_path / "out/report.html").exists()


def test_tasks_named_like_logs_have_logs_of_their_own(write_job: WriteJob, tmp_path: Path) -> None:
    names = ("setup", "warm-training", "train-rank-0")
    tasks = [{"name": name, "process": {"command": ["sh", "-c", f"echo task {name} $SAID | tee $TUNEYARD_OUTPUT/a"]}} for name in names]
    job = write_job(*tasks, setup=["echo before all", "export SAID=exported"])
    assert main(["run", str(job), "--out", str(tmp_path / "out")]) == 0
    assert "before all" in (tmp_path / "out/logs/setup.log").read_text()
    for name in names:
        assert (tmp_path / f"out/logs/{name}-process.log").read_text() == f"task {name} exported\n"


def test_a_setup_command_that_fails(write_job: WriteJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(write_job(PREPARE, setup=["exit 4"])), "--out", str(tmp_path / "out")]) == 1
    assert "the setup command `exit 4` ended with exit code 4" in capsys.readouterr().err


def test_a_deadline_ends_the_job(write_job: WriteJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = write_job({"name": "slow", "process": {"command": ["sleep", "60"]}}, deadline=1)
    assert main(["run", str(job), "--out", str(tmp_path / "out")]) == 1
    assert "deadline of 1 s has passed in task slow" in capsys.readouterr().err
