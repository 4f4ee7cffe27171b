"""A job with a train task, from the command to the report; interrupted, killed, resumed; alone, with two workers, and under torchrun."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from tests.builders.checkpoints import committed, stop_after
from tests.builders.models import write_model
from tests.builders.programs import write_program
from tests.integration.runtime.conftest import (
    STEPS,
    TUNEYARD,
    RunJoined,
    environment,
    read_report,
    short_train,
    train,
    tuneyard,
    tuneyard_here,
    wait_for,
    write_jobspec,
)

JOBSPECS = Path(__file__).parents[3] / "jobspecs"
NARROW = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1}
SECRET = "hf_never-write-me-down-4711"
REFERENCE = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "QUIET_TOKEN"}}}


@dataclass(frozen=True)
class Ran:
    out: Path
    stdout: str
    stderr: str

    @property
    def task(self) -> dict[str, Any]:
        task: dict[str, Any] = read_report(self.out)["tasks"]["tune"]
        return task


@pytest.fixture(scope="module")
def job_file(inputs: Path) -> Path:
    prepare = {"name": "prepare", "process": {"command": ["sh", "-c", "cp chats.jsonl $TUNEYARD_OUTPUT; echo token $HF_TOKEN"]}}
    tune = {"name": "tune", "train": train(data={"from": "prepare", "path": "chats.jsonl", "maxLength": 64})}
    return write_jobspec(inputs / "train.yaml", prepare, tune, env=[REFERENCE], setup=["echo setup sees $HF_TOKEN"])


@pytest.fixture(scope="module")
def undisturbed(job_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The job run to its end with an embedded Ray and fork servers of its own: two workers, ZeRO-2."""
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    done = tuneyard("run", job_file, "--out", out, QUIET_TOKEN=SECRET, TUNEYARD_WARM_SERVERS="")
    assert done.returncode == 0, done.stderr
    return Ran(out, done.stdout, done.stderr)


def test_the_last_line_is_the_path_of_the_report(undisturbed: Ran) -> None:
    assert undisturbed.stdout.splitlines()[-1] == str(undisturbed.out / "report.json")
    assert (undisturbed.out / "report.html").stat().st_size > 0


def test_ranks_are_forks_of_the_job_s_own_server(undisturbed: Ran) -> None:
    assert "starts cold" not in undisturbed.stderr
    assert "start cold" not in undisturbed.stderr
    assert "Traceback" not in (undisturbed.out / "logs/warm-training.log").read_text()


def test_the_report_has_what_a_train_task_owes(undisturbed: Ran) -> None:
    task = undisturbed.task
    assert task["status"] == "succeeded"
    assert len(task["losses"]) == task["steps"] == STEPS
    [machine] = task["details"]["machines"]
    assert machine["ranks"] == 2
    assert 0 < machine["cpu_share_of_rank"]["most"] <= 1
    [over_steps] = task["machines"]
    assert over_steps["step"][-1] <= STEPS
    assert 0 < over_steps["cpu_share"][-1] <= 1
    assert task["losses"][-1] < task["losses"][0]
    assert task["world_size"] == len(task["peak_memory_gb"]) == 2
    for name in ("tokens_per_s", "mfu", "flops_per_step", "planned_memory_gb", "wall_s"):
        assert task[name] > 0, name
    assert all(0.2 < held < peak for held, peak in zip(task["libraries_gb"], task["peak_memory_gb"], strict=True))
    assert task["plan"]["memory"]["libraries_gb"] > 0.2
    assert (Path(task["artifacts"]["model"]) / "model.safetensors").exists()
    assert json.loads((undisturbed.out / "tune/result.json").read_text())["steps"] == STEPS


@pytest.mark.usefixtures("warm_servers")
def test_what_init_writes_for_a_csv_is_run_from_python_and_its_adapter_goes_on_in_another_job(inputs: Path, tmp_path: Path) -> None:
    rows = [f"what is {number} and {number}?,{2 * number}" for number in range(16)]
    (tmp_path / "sums.csv").write_text("\n".join(["question,answer", *rows]))
    written = tuneyard_here("init", "--data", tmp_path / "sums.csv", "--model", inputs / "model", "--out", tmp_path / "job.yaml")
    assert written.returncode == 0, written.stderr
    job = yaml.safe_load((tmp_path / "job.yaml").read_text())
    first = next(task for task in job["spec"]["tasks"] if task["name"] == "train")
    first["train"] |= {"model": {"name": "out/train/model"}, "epochs": None, "steps": 1}
    (tmp_path / "more.yaml").write_text(yaml.safe_dump({**job, "spec": {**job["spec"], "tasks": [first]}}))
    program = """\
import tuneyard
for file, out in (("job.yaml", "out"), ("more.yaml", "more")):
    report = tuneyard.run(file, out=out)
    print(report.status, report.tasks["train"]["steps"])
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["succeeded", "100", "succeeded", "1"]
    assert (tmp_path / "out" / "train" / "model" / "adapter_model.safetensors").exists()
    result = json.loads((tmp_path / "more" / "train" / "result.json").read_text())  # the adapter of the first job goes on, on its base
    assert result["base_model_uri"] == str(inputs / "model")
    assert result["losses"][0] < json.loads((tmp_path / "out" / "train" / "result.json").read_text())["losses"][0]


def test_progress_is_told_in_plain_lines(undisturbed: Ran) -> None:
    lines = undisturbed.stderr.splitlines()
    said = [line.removeprefix("tune     ") for line in lines if line.startswith("tune     ")]
    assert said[:2] == ["started (train)", "starting 2 ranks"]
    assert any(line.startswith(f"step 1/{STEPS}  loss ") for line in said)
    assert any(line.startswith(f"tune     step {STEPS}/{STEPS}  loss ") and "tokens/s" in line for line in lines)
    assert any("checkpoint of step 5 committed" in line for line in lines)


def test_no_secret_is_written_anywhere(undisturbed: Ran) -> None:
    assert "token ***" in (undisturbed.out / "logs/prepare-process.log").read_text()
    assert "setup sees ***" in (undisturbed.out / "logs/setup.log").read_text()
    files = [path for path in undisturbed.out.rglob("*") if path.is_file()]
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
    assert SECRET not in undisturbed.stdout + undisturbed.stderr


def test_ranks_log_into_the_output(undisturbed: Ran) -> None:
    assert {path.name for path in (undisturbed.out / "logs").glob("tune-rank-*.log")} == {"tune-rank-0.log", "tune-rank-1.log"}


@pytest.mark.usefixtures("warm_servers")
def test_ctrl_c_keeps_a_checkpoint_and_another_layout_ends_the_same(
    job_file: Path, undisturbed: Ran, run_joined: RunJoined, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = subprocess.Popen(
        [*TUNEYARD, "run", str(job_file), "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(QUIET_TOKEN=SECRET),
        start_new_session=True,
    )
    wait_for(out / "tune/checkpoints/step-5.1/manifest.json", process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the command and all that it started
    stdout, stderr = process.communicate(timeout=300)

    assert process.returncode == 1, stderr
    assert "stopping at the next step, keeping the checkpoint; Ctrl-C again to end at once" in stderr
    assert "--resume" in stderr
    assert stdout.splitlines()[-1] == str(out / "report.json")
    report = read_report(out)
    assert report["status"] == report["tasks"]["tune"]["status"] == "stopped"
    steps = report["tasks"]["tune"]["steps"]
    assert 5 <= steps < STEPS
    assert committed(out / "tune")[-1] == steps

    job = yaml.safe_load(job_file.read_text())
    tune = job["spec"]["tasks"][1]
    tune["train"]["strategy"] = {"zero": 3}
    tune["resources"] = {"workers": 1}
    smaller = job_file.with_name("one-worker.yaml")
    smaller.write_text(yaml.safe_dump(job))
    resumed = run_joined(smaller, out, "--resume", QUIET_TOKEN=SECRET)
    assert resumed.returncode == 0, resumed.stderr
    assert "prepare  done before, skipped" in resumed.stderr
    assert f"tune     continues from step {steps + 1} of {STEPS}" in resumed.stderr
    task = read_report(out)["tasks"]["tune"]
    assert task["resumed_from"] == steps
    assert task["world_size"] == 1
    assert task["losses"] == pytest.approx(undisturbed.task["losses"], rel=1e-4)

    done = read_report(out)
    again = run_joined(smaller, out, "--resume", QUIET_TOKEN=SECRET)
    assert again.returncode == 0, again.stderr
    assert read_report(out)["tasks"] == done["tasks"]


@pytest.mark.usefixtures("warm_servers")
def test_a_stop_while_ranks_load_waits_for_nothing(run_joined: RunJoined, tmp_path: Path) -> None:
    """A rank that loads, for ever here, has nothing to save. benchmarks/ended_runs.py draws the instant at random."""
    loads = tmp_path / "loads"
    loads.touch()
    wait = f"import os, time\n        while os.path.exists({str(loads)!r}) and 'RANK' in os.environ: time.sleep(0.05)"
    write_program(tmp_path / "program", model=f"{wait}\n        return nn.Linear(2, 1)")
    body = {"program": "line:Line", "programDir": "program", "data": {"source": "program/rows.jsonl"}, "batch": {"global": 8}, "steps": 3}
    job = write_jobspec(tmp_path / "job.yaml", {"name": "fit", "train": body, "resources": {"workers": 2}})
    out, history = tmp_path / "out", {"TUNEYARD_HISTORY": "on", "TUNEYARD_HISTORY_URL": f"sqlite:///{tmp_path}/history.db"}
    process = subprocess.Popen(
        [*TUNEYARD, "run", str(job), "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**history),
        start_new_session=True,
    )
    logs = [out / "logs" / f"fit-rank-{rank}.log" for rank in range(2)]
    for log in logs:
        wait_for(log, process)
    while "loading the program" not in logs[0].read_text():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    ranks = [int(pid) for log in logs for pid in re.findall(r"process (\d+)", log.read_text())]
    os.killpg(process.pid, signal.SIGTERM)
    stderr = process.communicate(timeout=300)[1]
    assert process.returncode == 1, stderr
    report = read_report(out)
    assert report["status"] == report["tasks"]["fit"]["status"] == "stopped"
    [listed] = json.loads(tuneyard("history", "list", "-o", "json", **history).stdout)
    assert listed["status"] == "stopped"
    assert len(ranks) == 2
    assert [pid for pid in ranks if psutil.pid_exists(pid)] == []

    loads.unlink()
    resumed = run_joined(job, out, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert read_report(out)["tasks"]["fit"]["steps"] == 3


def test_a_resume_takes_another_rate_and_says_so_and_refuses_another_seed(
    inputs: Path, one_worker: dict[str, Any], run_joined: RunJoined, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(Path(one_worker["whole"]["output"]).parent, out)
    stop_after(STEPS - 5, out / "whole")
    (out / "whole" / "result.json").unlink()

    def resumed(**changes: Any) -> subprocess.CompletedProcess[str]:
        task = {"name": "whole", "train": train(**changes), "resources": {"workers": 1}}
        return run_joined(write_jobspec(inputs / "changed.yaml", task), out, "--resume")

    refused = resumed(seed=7)
    assert refused.returncode == 2
    assert "started with other settings than the JobSpec has now (train.seed: 42 -> 7; see " in refused.stderr

    taken = resumed(optimizer={"learningRate": 2e-3})
    assert taken.returncode == 0, taken.stderr
    assert f"optimizer.learningRate changes from 0.001 to 0.002, at step {STEPS - 4}" in taken.stderr
    assert read_report(out)["tasks"]["whole"]["resumed_from"] == STEPS - 5

    finished = resumed(optimizer={"learningRate": 3e-3})
    assert finished.returncode == 2
    assert "train.optimizer.learningRate: 0.002 -> 0.003" in finished.stderr


def test_a_finished_run_goes_on_as_one_that_was_longer_from_the_start(inputs: Path, run_joined: RunJoined, tmp_path: Path) -> None:
    """Bit for bit where the schedule does not depend on the length; and a task after it runs again."""

    def run(steps: int, out: str, *options: str, **optimizer: Any) -> tuple[subprocess.CompletedProcess[str], list[float]]:
        body = short_train(steps=steps, optimizer={"learningRate": 1e-3, **optimizer})
        tasks = [
            {"name": "short", "train": body, "resources": {"workers": 1}},
            {"name": "after", "process": {"command": ["touch", "$TUNEYARD_OUTPUT/made"]}},
        ]
        tasks[1]["dependsOn"] = ["short"]
        done = run_joined(write_jobspec(inputs / f"longer-{steps}.yaml", *tasks), tmp_path / out, *options)
        assert done.returncode == 0, done.stderr
        losses: list[float] = read_report(tmp_path / out)["tasks"]["short"]["losses"]
        return done, losses

    _, whole = run(6, "whole", schedule="constant")
    _, first = run(3, "out", schedule="constant")
    done, losses = run(6, "out", "--resume", schedule="constant")

    assert first == whole[:3]
    assert losses == whole
    assert "steps changes from 3 to 6, at step 4" in done.stderr
    assert "after warning: runs again: task short goes on" in " ".join(done.stderr.split())
    saved = [(tmp_path / each / "short/model/model.safetensors").read_bytes() for each in ("whole", "out")]
    assert saved[0] == saved[1]

    done, losses = run(8, "out", "--resume", schedule="linear")
    assert losses[:6] == whole
    # One step of warm-up, then seven down to 0: two are left.
    assert f"the learning rate goes on at {1e-3 * 2 / 7:.3g} in step 7 (linear over 8 steps); the checkpoint had 0.001" in done.stderr


def test_a_model_that_has_lost_a_file_is_written_again_from_its_checkpoint(inputs: Path, run_joined: RunJoined, tmp_path: Path) -> None:
    job = write_jobspec(inputs / "lost.yaml", {"name": "train", "train": short_train(steps=2), "resources": {"workers": 1}})
    out, model = tmp_path / "out", tmp_path / "out" / "train" / "model"
    assert run_joined(job, out).returncode == 0
    before = {path.name: path.read_bytes() for path in model.glob("*.safetensors")}

    for lose, told in [((model / "tokenizer.json").unlink, "train/model/tokenizer.json"), (partial(shutil.rmtree, model), "train/model")]:
        lose()
        again = run_joined(job, out, "--resume")

        assert again.returncode == 0, again.stderr
        assert f"to write what was lost or changed since: {told}" in " ".join(again.stderr.split())
        assert (model / "tokenizer.json").is_file()
        assert {path.name: path.read_bytes() for path in model.glob("*.safetensors")} == before
    assert "skipped" in run_joined(job, out, "--resume").stderr

    (model / "tokenizer.json").unlink()
    shutil.rmtree(out / "train" / "checkpoints")
    refused = run_joined(job, out, "--resume")
    assert refused.returncode == 2
    assert "train/model/tokenizer.json" in refused.stderr
    assert "has no checkpoint to write it from" in refused.stderr


def test_an_adapter_is_continued_as_it_is_or_not_at_all(inputs: Path, run_joined: RunJoined, tmp_path: Path) -> None:
    def task(name: str, start: dict[str, str], **method: Any) -> dict[str, Any]:
        body = short_train(model=start, method={"lora": method}, steps=2)
        return {"name": name, "train": body, "resources": {"workers": 1}}

    first = task("first", {"name": "model"}, rank=4)
    second = task("second", {"from": "first"}, dropout=0.3)
    third = task("third", {"from": "second"}, targets=["q_proj"])
    ran = run_joined(write_jobspec(inputs / "continued.yaml", first, second, third), tmp_path / "out")

    assert ran.returncode == 2, ran.stderr
    said = ran.stderr
    assert "has dropout 0, and the task asks for 0.3, which counts from here on" in said
    assert "keeps its own settings: rank 4, alpha 8" in said
    assert "error: task third: " in said or "error: " in said
    assert ", and the task asks for q_proj" in said
    assert "start from this one's merged model (tuneyard merge)" in said
    config = json.loads((tmp_path / "out" / "second" / "model" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["lora_dropout"]) == (4, 8, 0.3)


def test_a_killed_worker_is_replaced_from_the_last_checkpoint(
    job_file: Path, undisturbed: Ran, run_joined: RunJoined, tmp_path: Path
) -> None:
    out = tmp_path / "out"

    def kill() -> int:
        wait_for(out / "tune/checkpoints/step-5.1/manifest.json")
        pid = int((out / "logs/tune-rank-1.log").read_text().split("process ")[1].split()[0])
        os.kill(pid, signal.SIGKILL)
        return pid

    with ThreadPoolExecutor(1) as beside:
        killed = beside.submit(kill)
        done = run_joined(job_file, out, QUIET_TOKEN=SECRET)

    assert done.returncode == 0, done.stderr
    assert f"rank 1 (process {killed.result()}" in done.stderr
    assert "killed from outside" in done.stderr
    assert "starting attempt 2 of 4 from the last committed checkpoint" in done.stderr
    task = read_report(out)["tasks"]["tune"]
    assert [attempt.get("failure") for attempt in task["attempts"]] == ["NodeLost", None]
    assert task["resumed_from"] >= 5
    assert task["losses"] == pytest.approx(undisturbed.task["losses"], rel=1e-6)


def test_one_worker_has_the_losses_of_two(undisturbed: Ran, one_worker: dict[str, Any]) -> None:
    assert one_worker["whole"]["losses"] == pytest.approx(undisturbed.task["losses"], rel=1e-3)


def test_the_next_job_of_a_team_tokenises_nothing(inputs: Path, one_worker: dict[str, Any], run_joined: RunJoined, tmp_path: Path) -> None:
    """Two jobs, as on two machines: each has a cache of its own. The rows of a program are shared likewise, and come from a service too."""
    write_program(inputs / "program")
    service = {"minWorkers": 1, "maxWorkers": 1, "cpus": 0.1, "memoryGb": 0.5}

    def of_program(name: str, seed: int = 1, **data: Any) -> dict[str, Any]:
        rows = {"source": "program/rows.jsonl", "validationFraction": 0.2, **data}
        body = {"program": "line:Line", "programDir": "program", "data": rows, "batch": {"global": 8}, "steps": 12, "seed": seed}
        return {"name": name, "train": {**body, "optimizer": {"learningRate": 0.01}}, "resources": {"workers": 1}}

    def run(name: str) -> dict[str, Any]:
        body = short_train(data={"source": "chats.jsonl", "maxLength": 64, "streaming": True})
        tasks = [{"name": "tune", "train": body, "resources": {"workers": 1}}, of_program("rows", 2, streaming=True)]
        tasks += [of_program("served", service=service), of_program("stored")] if name == "first" else []
        job = write_jobspec(inputs / f"{name}.yaml", *tasks, team="maps", env=[{"name": "TUNEYARD_CACHE", "value": str(tmp_path / name)}])
        done = run_joined(job, tmp_path / f"{name}-out", TUNEYARD_SHARED_SHARDS=str(tmp_path / "tier"), TUNEYARD_SHARED_SHARDS_SIZE="1Gi")
        assert done.returncode == 0, done.stderr
        made: dict[str, Any] = read_report(tmp_path / f"{name}-out")["tasks"]
        return made

    first, second = run("first"), run("second")
    assert first["tune"]["losses"] == second["tune"]["losses"] == one_worker["short"]["losses"]
    assert first["rows"]["losses"] == second["rows"]["losses"]
    assert [first["served"][name] for name in ("losses", "eval_losses")] == [first["stored"][name] for name in ("losses", "eval_losses")]
    assert "data_service" in first["served"]["details"], "which such a short task may end before"
    for task in ("tune", "rows"):
        built, fetched = (made[task]["details"]["shared_shards"] for made in (first, second))
        assert built["built"] == built["stored"] + built["stored_by_others"] > 0
        assert fetched["built"] == fetched["missing"] == 0
        assert fetched["fetched"] >= built["stored"]
    assert [path.name for path in (tmp_path / "tier").iterdir()] == ["maps"]


@pytest.mark.long
@pytest.mark.parametrize("processes", [1, 2])
def test_torchrun_has_the_losses_of_ray(processes: int, inputs: Path, undisturbed: Ran, tmp_path: Path) -> None:
    job = write_jobspec(inputs / f"torchrun-{processes}.yaml", {"name": "tune", "train": train()})
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--standalone"]
    command = [*torchrun, "-m", "tuneyard.training", str(job), "--task", "tune", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=600)
    assert done.returncode == 0, done.stderr
    losses = json.loads((tmp_path / "tune/result.json").read_text())["losses"]
    assert losses == pytest.approx(undisturbed.task["losses"], rel=1e-3)


@pytest.mark.parametrize("name", ["lora", pytest.param("dpo", marks=pytest.mark.long)])
def test_the_examples_run_on_any_model(name: str, run_joined: RunJoined, tmp_path: Path) -> None:
    """On one narrow layer: an example has hundreds of long rows."""
    model = write_model(tmp_path / "model", max_position_embeddings=2048, **NARROW)
    done = run_joined(JOBSPECS / f"{name}.yaml", tmp_path / "out", "--model", model)
    assert done.returncode == 0, done.stderr
    task = list(read_report(tmp_path / "out")["tasks"].values())[-1]
    assert (Path(task["artifacts"]["adapter"]) / "adapter_config.json").exists()
