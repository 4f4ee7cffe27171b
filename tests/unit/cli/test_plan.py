"""`tuneyard plan`, as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tuneyard.cli import main
from tuneyard.cli.plan_picture import bar

JOB = """\
apiVersion: tuneyard.dev/v1alpha1
kind: JobSpec
metadata: {name: small}
spec:
  tasks:
  - name: train
    train:
      model: {name: ./model}
      data: {source: chats.jsonl}
      steps: 1000
    resources: {sku: [a100-80gb, h100-80gb]}
  - name: judge
    dependsOn: [train]
    score:
      model: {from: train}
      data: {source: chats.jsonl, prompt: question}
    resources: {sku: [h100-80gb], instances: 4}
"""
LLAMA_8B = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8} | {
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
}


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(LLAMA_8B))
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


def rows(capsys: pytest.CaptureFixture[str], *argv: str) -> list[dict[str, Any]]:
    assert main(["plan", *argv, "-o", "json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def test_json_has_memory_speed_time_and_cost(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(capsys, str(job), "--sku", "h100-80gb", "--workers", "8", "--price", "h100-80gb=2.5")
    train = next(row for row in found if row["task"] == "train")
    assert train["fits"]
    memory = train["memory_gb"]
    assert sum(value for name, value in memory.items() if name != "total") == pytest.approx(memory["total"])
    assert sum(train["step_terms_s"].values()) == pytest.approx(train["step_s"])
    assert train["tokens_per_s"] * train["step_s"] == pytest.approx(32 * 2048)
    assert train["micro_batch"] * train["grad_accum"] * train["workers"] == 32
    assert train["duration_s"] == pytest.approx(1000 * train["step_s"])
    assert train["cost"] == pytest.approx(train["duration_s"] / 3600 * 8 * 2.5)
    assert 0 < train["mfu"] < 1
    assert train["strategy"]["tensorParallel"] == 1


def test_a_score_task_has_its_engines_and_their_cache(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    judge = rows(capsys, str(job))[-1]
    assert (judge["task"], judge["engines"], judge["tensorParallel"], judge["engines_per_node"]) == ("judge", 4, 1, 8)
    assert judge["kv_bytes_per_token"] == 128 * 1024
    assert judge["kv_tokens"] > 400_000


def test_an_engine_that_needs_more_gpus_than_the_file_says_tells_so(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    judge = rows(capsys, str(job), "--sku", "t4-16gb")[-1]
    assert judge["tensorParallel"] == 2
    assert judge["reason"].endswith("set engine.tensorParallel to 2")


def test_the_best_of_each_placement_and_with_all_every_plan(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = [row for row in rows(capsys, str(job), "--workers", "8") if row["task"] == "train"]
    assert [(row["sku"], row["workers"]) for row in one] == [("a100-80gb", 8), ("h100-80gb", 8)]
    every = [row for row in rows(capsys, str(job), "--workers", "8", "--sku", "h100-80gb", "--all") if row["task"] == "train"]
    assert len(every) > 1
    speeds = [row["tokens_per_s"] for row in every]
    assert speeds == sorted(speeds, reverse=True)


def test_without_steps_or_price_there_is_no_time_or_cost(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(JOB.replace("      steps: 1000\n", ""))
    train = rows(capsys, str(job), "--workers", "8")[0]
    assert train["duration_s"] is None
    assert train["cost"] is None


def test_a_slow_network_is_slower(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(JOB.replace("steps: 1000", "batch: {global: 64}"))
    speeds = [
        rows(capsys, str(job), "--workers", "32", "--sku", "h100-80gb", "--network-gb-s", rate)[0]["tokens_per_s"] for rate in ("3", "400")
    ]
    assert speeds[0] < speeds[1]


def test_the_table_and_the_picture(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(job), "--workers", "8"]) == 0
    shown = capsys.readouterr().out
    assert "tokens per s" in shown
    assert "█ weights  ▓ gradients  ▒ optimizer  ░ activations  · other  | limit" in shown
    assert "train 8 x h100-80gb, zero 3" in shown
    assert "of 80 GB" in shown


def test_what_does_not_fit_says_why_and_what_would(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(job), "--workers", "1", "--sku", "a100-80gb"]) == 0
    shown = capsys.readouterr().out
    assert "does not fit on 1 x a100-80gb: a rank takes" in shown
    assert "strategy.offload.optimizer to cpu" in shown


def test_a_model_that_is_not_made_yet_is_a_reason_for_a_score_task(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    process = (
        "  - name: merge\n    dependsOn: [train]\n    process: {command: [python, merge.py]}\n  - name: judge\n    dependsOn: [merge]\n"
    )
    job.write_text(JOB.replace("  - name: judge\n    dependsOn: [train]\n", process).replace("{from: train}", "{from: merge}"))
    found = rows(capsys, str(job), "--workers", "8")
    assert "its model is made by task" in found[-1]["reason"]


def test_a_hub_that_cannot_be_asked_is_not_taken_for_a_model_that_is_none(
    job: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    job.write_text(
        "\n".join(f"{line.split('{')[0]}{{name: nobody/nothing}}" if "model: {name" in line else line for line in JOB.splitlines())
    )
    assert main(["plan", str(job)]) == 2
    assert "the Hugging Face hub cannot be asked for it" in capsys.readouterr().err


@pytest.mark.parametrize("price", ["h100-80gb", "h100-80gb=much", "h100-80gb=-1"])
def test_a_price_that_is_none_is_refused(job: Path, capsys: pytest.CaptureFixture[str], price: str) -> None:
    assert main(["plan", str(job), "--price", price]) == 2
    assert "--price h100-80gb=2.5" in capsys.readouterr().err


def test_pieces_of_a_bar_add_up_and_the_limit_is_marked() -> None:
    drawn = bar({"weights": 20.0, "gradients": 10.0, "optimizer": 0.5, "activations": 9.5, "other": 0.0, "total": 40.0}, 73.6, 80.0).plain
    assert drawn == "█" * 15 + "▓" * 7 + "▒" + "░" * 7 + " " * 25 + "|" + " " * 5 + " 40 of 80 GB"
