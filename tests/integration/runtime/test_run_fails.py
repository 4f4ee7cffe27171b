"""What goes wrong inside the ranks: told in two lines, and nothing committed is lost."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.runtime.conftest import TUNEYARD, Cluster, RunJoined, WriteJob, environment, read_report, train, tuneyard


def test_a_loss_that_is_not_a_number(write_job: WriteJob, run_joined: RunJoined, tmp_path: Path) -> None:
    body = train(optimizer={"learningRate": 1e15, "maxGradNorm": 0, "warmup": 0, "name": "sgd"}, steps=10)
    done = run_joined(write_job({"name": "tune", "train": body, "resources": {"workers": 1}}), tmp_path / "out")
    assert done.returncode == 1
    assert "loss" in done.stderr
    assert "Traceback" not in done.stderr
    report = read_report(tmp_path / "out")
    assert report["status"] == "failed"
    assert not (tmp_path / "out/tune/model").exists()


def test_a_chat_without_an_assistant_turn(write_job: WriteJob, inputs: Path, run_joined: RunJoined, tmp_path: Path) -> None:
    rows = [json.dumps({"messages": [{"role": "user", "content": "hello"}]})] * 8
    (inputs / "one-sided.jsonl").write_text("\n".join(rows))
    job = write_job({"name": "tune", "train": train(data={"source": "one-sided.jsonl"}), "resources": {"workers": 1}})
    done = run_joined(job, tmp_path / "out")
    assert done.returncode == 2
    assert "assistant" in done.stderr
    assert "next: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for one checkpoint, and not for a second."""
    folder = tmp_path / "small"
    folder.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)], check=False).returncode != 0:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_keeps_what_was_committed(write_job: WriteJob, small_disk: Path, run_joined: RunJoined) -> None:
    out = small_disk / "out"
    job = write_job({"name": "tune", "train": train(checkpoint={"everySteps": 5, "keep": 9})})
    done = run_joined(job, out)
    assert done.returncode == 1
    assert "could not be written" in done.stderr
    assert "0.00 GB free" in done.stderr
    assert "free some space" in done.stderr
    assert f"then try again: tuneyard run {job} --out {out} --resume" in done.stderr
    committed = [path.parent for path in (out / "tune/checkpoints").glob("step-*/manifest.json")]
    assert committed, "the first checkpoint fits"
    for folder in committed:
        files = json.loads((folder / "manifest.json").read_text())["files"]
        assert all((folder / file["path"]).stat().st_size == file["size"] for file in files)


def test_a_cluster_that_asks_for_a_token(write_job: WriteJob, cluster: Cluster, tmp_path: Path) -> None:
    done = tuneyard("run", write_job({"name": "tune", "train": train()}), "--out", tmp_path / "out", "--ray", cluster.address)
    assert done.returncode == 2
    assert f"the Ray cluster at {cluster.address} asks for its token" in done.stderr
    assert "RAY_AUTH_TOKEN" in done.stderr


def test_a_run_whose_log_lies_on_a_full_disk_goes_on(write_job: WriteJob, tmp_path: Path) -> None:
    job = write_job({"name": "count", "process": {"command": ["bash", "-c", "echo done > $TUNEYARD_OUTPUT/out.txt"]}})
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [*TUNEYARD, "run", str(job), "--out", str(tmp_path / "out")], check=False, stdout=full, stderr=full, env=environment()
        )
    report = read_report(tmp_path / "out")
    assert (ended.returncode, report["status"], report["message"]) == (0, "succeeded", "")
