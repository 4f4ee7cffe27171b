"""Comet without a key, without a network, and without an installed server: an archive, or a warning; never a failed job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

from tests.servers import free_port

PROGRAM = """
import logging, sys
from pathlib import Path
from tests.reports import make_job, tell, train_events, train_result
from tuneyard.tracking import TaskEvent, open_recorder
hook = sys.excepthook
job = make_job(tracking={"comet": {"project": "support-bot", "tags": ["nightly"]}}, env=[{"name": "API_TOKEN", "value": "written-value"}])
recorder = open_recorder(job, output="out", folder=Path(sys.argv[1]), warn=lambda event: print("warned:", event.message))
tell(recorder, train_events())
recorder(TaskEvent(task="train", state="succeeded", kind="train", result=train_result()))
print(recorder.close("succeeded").status)
assert sys.excepthook is hook
"""


def run_with_comet(folder: Path, **environment: str) -> list[str]:
    """Lines that a job with Comet prints, on both streams."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COMET_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder)],
        env={**kept, "TUNEYARD_HISTORY": "off", "HOME": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return [line for line in (done.stdout + done.stderr).splitlines() if line]


def messages(archive: Path) -> list[dict[str, Any]]:
    with zipfile.ZipFile(archive) as content:
        return [json.loads(line) for line in content.read("messages.json").decode().splitlines()]


def test_without_a_key_an_archive_with_all_metrics_is_written(tmp_path: Path) -> None:
    assert run_with_comet(tmp_path) == ["succeeded"]

    (archive,) = (tmp_path / "comet").glob("*.zip")
    payloads = [message["payload"] for message in messages(archive)]
    metrics = [payload["metric"] for payload in payloads if isinstance(payload, dict) and "metric" in payload]
    losses = [metric for metric in metrics if metric["metricName"] == "train/loss"]
    assert len(losses) == 120
    assert {"train/tokens_per_s", "train/mfu", "train/memory_gb", "train/eval_loss"} <= {metric["metricName"] for metric in metrics}
    everything = json.dumps(payloads)
    assert "nightly" in everything
    assert "train/plan/zero" in everything
    assert "written-value" not in everything


def test_comets_own_uploader_finds_the_archive_valid(tmp_path: Path) -> None:
    run_with_comet(tmp_path)
    (archive,) = (tmp_path / "comet").glob("*.zip")

    from comet_ml.offline import OfflineSender, unzip_offline_archive

    # Reads and validates the experiment's own file, as `comet upload` does before it sends anything.
    sender = OfflineSender(api_key="none", offline_dir=unzip_offline_archive(str(archive)))
    validators = {"metric_msg": sender.metric_msg_validator, "parameter_msg": sender.parameter_msg_validator}
    checked: Counter[str] = Counter()
    for message in messages(archive):
        if message["type"] in validators:
            validators[message["type"]].validate(message["payload"])
            checked[message["type"]] += 1
    assert checked["metric_msg"] > 120
    assert checked["parameter_msg"] > 10


def test_a_server_that_cannot_be_reached_leaves_an_archive_and_a_warning(tmp_path: Path) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}/clientlib/"

    lines = run_with_comet(tmp_path, COMET_API_KEY="a-key-of-some-length", COMET_URL_OVERRIDE=nowhere)

    assert lines[-1] == "succeeded"
    assert any("comet upload" in line or "Comet gets no metrics" in line for line in lines)
    assert "a-key-of-some-length" not in str(lines)


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    lines = run_with_comet(tmp_path / "file")

    assert lines[-1] == "succeeded"
    assert any("Comet gets no metrics" in line for line in lines)
