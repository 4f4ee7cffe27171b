"""`tuneyard plan`, as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.unit.catalog.test_other_gpus import MEASURED

from tuneyard.cli import main
from tuneyard.cli.plan.command import _calibration_lines, _Past
from tuneyard.cli.plan.layout import layout_text
from tuneyard.cli.plan.picture import bar

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


def rows(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> list[dict[str, Any]]:
    assert main(["plan", *argv, "-o", "json"]) == code
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


def test_hf_is_a_model_of_the_hub_and_no_folder_of_its_name(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, weights = "Qwen/Qwen2.5-0.5B", []
    (job.parent / "model").rename(job.parent / "0.5B")
    (job.parent / "Qwen").mkdir()
    (job.parent / "0.5B").rename(job.parent / name)
    for given in (name, f"hf://{name}"):
        job.write_text(JOB.replace("./model", given))
        weights.append(rows(capsys, str(job), "--workers", "8", "--sku", "h100-80gb")[0]["memory_gb"]["weights"])
    assert weights[0] > 10 * weights[1] > 0


def test_a_score_task_has_its_engines_and_their_cache(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    judge = rows(capsys, str(job))[-1]
    assert (judge["task"], judge["engines"], judge["tensorParallel"], judge["engines_per_node"]) == ("judge", 4, 1, 8)
    assert judge["kv_bytes_per_token"] == 128 * 1024
    assert judge["kv_tokens"] > 400_000


def test_an_engine_that_needs_more_gpus_than_the_file_says_tells_so(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    judge = rows(capsys, str(job), "--sku", "t4-16gb", code=1)[-1]  # the train task does not fit
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
    assert "█ weights  ▒ optimizer  ░ activations  · other  | limit" in shown
    assert "train 8 x h100-80gb, zero 3" in shown
    assert "of 80 GB" in shown


def test_what_does_not_fit_says_why_and_what_would(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(job), "--workers", "1", "--sku", "a100-80gb"]) == 1
    shown = capsys.readouterr().out
    assert "does not fit on 1 x a100-80gb: a rank takes" in shown
    assert "strategy.offload.optimizer to cpu" in shown


def test_a_file_with_a_task_that_fits_nowhere_ends_with_1_and_all_its_rows(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(job), "--workers", "1", "--sku", "a100-80gb", "-o", "json"]) == 1
    train, judge = json.loads(capsys.readouterr().out)
    assert (train["task"], train["fits"]) == ("train", False)
    assert "does not fit on 1 x a100-80gb" in train["reason"]
    assert (judge["task"], judge["fits"]) == ("judge", True)


@pytest.mark.parametrize(
    ("head", "command"),
    [("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n", "git lfs pull"), ("/annex/objects/SHA256E-s9", "git annex get")],
)
def test_a_model_or_data_that_version_control_has_not_fetched_is_named(
    head: str, command: str, job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in ("model/model.safetensors", "chats.jsonl"):
        (tmp_path / file).write_text(head)
    assert main(["plan", str(job)]) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path / 'model' / 'model.safetensors'}: a pointer of " in said
    assert command in said
    assert main(["validate", str(job)]) == 0
    warned = capsys.readouterr().err
    assert warned.count(f"; fetch the file in its repository: {command}") == 3
    assert "train.model.name" in warned
    assert "train.data.source" in warned
    assert "score.data.source" in warned


def test_one_placement_that_fits_is_enough(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(capsys, str(job), "--workers", "1", "--sku", "a100-80gb", "--sku", "mi355x-288gb")
    assert [row["fits"] for row in found if row["task"] == "train"] == [False, True]


def test_an_engine_that_fits_nowhere_ends_with_1(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(JOB.replace("prompt: question}", "prompt: question}\n      engine: {memoryFraction: 0.01}"))
    assert main(["plan", str(job), "--workers", "8"]) == 1
    assert "an engine does not fit on 1 x h100-80gb" in " ".join(capsys.readouterr().out.split())


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
    assert "the Hugging Face hub cannot be reached" in capsys.readouterr().err


@pytest.mark.parametrize("price", ["h100-80gb", "h100-80gb=much", "h100-80gb=-1"])
def test_a_price_that_is_none_is_refused(job: Path, capsys: pytest.CaptureFixture[str], price: str) -> None:
    assert main(["plan", str(job), "--price", price]) == 2
    assert "--price h100-80gb=2.5" in capsys.readouterr().err


def test_pieces_of_a_bar_add_up_and_the_limit_is_marked() -> None:
    drawn = bar({"weights": 20.0, "gradients": 10.0, "optimizer": 0.5, "activations": 9.5, "other": 0.0, "total": 40.0}, 73.6, 80.0).plain
    assert drawn == "█" * 15 + "▓" * 7 + "▒" + "░" * 7 + " " * 25 + "|" + " " * 5 + " 40 of 80 GB"


def with_chats(job: Path, count: int, *, task: str = "epochs: 2") -> Path:
    """The job with `count` chats of about 200 characters, and `epochs` instead of `steps`."""
    job.write_text(JOB.replace("steps: 1000", task))
    chat = {"messages": [{"role": "user", "content": "why " * 10}, {"role": "assistant", "content": "so " * 50}]}
    (job.parent / "chats.jsonl").write_text(f"{json.dumps(chat)}\n" * count)
    return job


def test_epochs_take_as_long_as_their_data(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = rows(capsys, str(with_chats(job, 640)), "--sku", "h100", "--workers", "8", "--price", "h100=2.5")[0]
    assert train["steps"] == {"likely": 40, "low": 40, "high": 40}
    assert 40 < train["tokens_per_row"] < 100, "samples are short, and padded to the longest of a micro-batch alone"
    assert 0 < train["duration_s"] < 40 * train["step_s"]
    assert train["cost"] == pytest.approx(train["duration_s"] / 3600 * 8 * 2.5)


def test_epochs_of_a_mixture_take_as_long_as_its_parts(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, count in (("a", 640), ("b", 320)):
        (job.parent / f"{name}.jsonl").write_text((json.dumps({"prompt": "p " * 60, "completion": "c " * 60}) + "\n") * count)
    mix = "data: {mix: [{source: a.jsonl, weight: 1}, {source: b.jsonl, weight: 1}]"
    for ends, steps in (("", 30), (", whenExhausted: stop", 20), (", whenExhausted: leave", 30)):
        job.write_text(JOB.replace("data: {source: chats.jsonl}\n      steps: 1000", f"{mix}{ends}}}\n      epochs: 1"))
        found = rows(capsys, str(job), "--sku", "h100-80gb", "--workers", "8")
        assert next(row for row in found if row["task"] == "train")["steps"]["likely"] == pytest.approx(steps, abs=1)


def planned_mixture(job: Path, rest: str, length: str) -> None:
    """A job on 64 rows of weight 3, 64 of weight 1 and 896 of weight 1: 32 steps an epoch. `length`: epochs or steps."""
    for name, count in (("small", 64), ("other", 64), ("large", 896)):
        (job.parent / f"{name}.jsonl").write_text((json.dumps({"prompt": "p " * 60, "completion": "c " * 60}) + "\n") * count)
    parts = ", ".join(f"{{source: {name}.jsonl, weight: {weight}}}" for name, weight in (("small", 3), ("other", 1), ("large", 1)))
    job.write_text(JOB.replace("data: {source: chats.jsonl}\n      steps: 1000", f"data: {{mix: [{parts}]{rest}}}\n      {length}"))


def test_a_mixture_is_planned_with_the_rows_and_passes_of_each_part(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planned_mixture(job, ", whenExhausted: leave", "epochs: 1")
    found = next(row for row in rows(capsys, str(job), "--sku", "h100-80gb", "--workers", "8") if row["task"] == "train")["mixture"]
    assert [part["name"] for part in found] == ["small.jsonl", "other.jsonl", "large.jsonl"]
    assert [part["passes"] for part in found] == [1.0, 1.0, 1.0]
    assert [part["share"] for part in found] == [0.0625, 0.0625, 0.875]
    assert [part["weight"] for part in found] == pytest.approx([0.6, 0.2, 0.2], abs=0.001)
    assert [part["far_from_weight"] for part in found] == [True, True, True]
    assert main(["plan", str(job), "--sku", "h100-80gb", "--workers", "8"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "warning: shares of rows are far from the weights: small.jsonl 6.2% instead of 60.0%" in shown
    assert "large.jsonl 896 87.5% 20.0% 1.00" in shown


def test_shares_that_are_as_the_weights_say_are_planned_without_a_warning(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planned_mixture(job, "", "steps: 20")
    found = next(row for row in rows(capsys, str(job), "--sku", "h100-80gb", "--workers", "8") if row["task"] == "train")
    assert [part["far_from_weight"] for part in found["mixture"]] == [False, False, False]
    assert sum(part["rows"] for part in found["mixture"]) == 640
    assert found["mixture"][0]["passes"] == pytest.approx(640 * 0.6 / 64, abs=0.2)
    assert main(["plan", str(job), "--sku", "h100-80gb", "--workers", "8"]) == 0
    assert "warning:" not in capsys.readouterr().out


def test_one_data_set_has_no_parts(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(capsys, str(with_chats(job, 640)), "--sku", "h100", "--workers", "8")
    assert all(row.get("mixture") is None for row in found)


def test_an_alias_of_a_sku_has_its_price_and_an_unknown_sku_none(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("h100", "H100-SXM", "h100-80gb"):
        assert rows(capsys, str(job), "--sku", "h100-80gb", "--workers", "8", "--price", f"{name}=2.5")[0]["cost"] > 0
    assert main(["plan", str(job), "--price", "h1000=2"]) == 2
    assert "h100" in capsys.readouterr().err


def test_a_price_that_nothing_is_planned_on_is_said_to_be_unused(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(job), "--price", "l40s=1"]) == 0
    assert "--price l40s-48gb is not used" in capsys.readouterr().err


def test_the_best_choice_comes_first_in_a_sentence(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["plan", str(with_chats(job, 64_000)), "--workers", "8", "--price", "h100=9", "--price", "a100=1"]
    assert main(argv) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("train: cheapest: 8 x a100-80gb, zero 3")
    assert lines[1].startswith("train: fastest: 8 x h100-80gb, zero 3")
    assert "4,000 steps in" in lines[0]
    assert " for " in lines[0]
    assert "64,000 samples were counted" in lines[2]


def test_a_length_that_is_not_known_is_explained_and_a_price_still_counts(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(JOB.replace("      steps: 1000\n", ""))
    assert main(["plan", str(job), "--workers", "8", "--sku", "h100", "--price", "h100=2.5"]) == 0
    shown = capsys.readouterr().out
    assert "for a million tokens" in shown.splitlines()[0]
    assert "its duration is unknown" in shown
    assert "chats.jsonl" in shown
    assert "cost per hour" in shown


def test_no_line_is_wider_than_a_terminal_and_no_number_has_an_exponent(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_chats(job, 200, task="steps: 1000000\n      strategy: {zero: 3, recompute: true, offload: {optimizer: cpu, parameters: cpu}}")
    prices = ["--price", "h100=2.5", "--price", "h100-pcie=2.5"]
    assert main(["plan", str(job), "--sku", "h100", "--sku", "h100-pcie", "--workers", "8", *prices]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 100
    assert "e+0" not in shown


LONG = "{zero: 3, shardWithin: host, quantisedAllReduce: int8, recompute: true}"


def test_a_long_layout_takes_several_lines_and_no_column_away(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(JOB.replace("steps: 1000", f"steps: 1000\n      batch: {{global: 64}}\n      strategy: {LONG}"))
    assert main(["plan", str(job), "--sku", "h100", "--workers", "16", "--price", "h100=2.5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (head,) = (at for at, line in enumerate(lines) if line.startswith("on "))
    assert "batch  gb per rank  tokens per s  mfu" in lines[head]
    assert "zero 3, inside hosts," in lines[head + 1]
    assert [line.strip() for line in lines[head + 2 : head + 4]] == ["gradients in int8,", "recompute"]
    assert max(map(len, lines)) <= 100


def test_labels_of_bars_have_the_whole_layout(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(JOB.replace("steps: 1000", f"steps: 1000\n      batch: {{global: 64}}\n      strategy: {LONG}"))
    assert main(["plan", str(job), "--sku", "h100", "--workers", "16"]) == 0
    picture = " ".join(capsys.readouterr().out.partition("memory of a rank")[2].split())
    assert "train 16 x h100-80gb, zero 3, inside hosts, gradients in int8, recompute, micro-batch" in picture


def test_tokens_in_slices_are_said_of_the_layout(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut = "strategy: {tensorParallel: 4, sequenceParallel: true}"
    job.write_text(JOB.replace("steps: 1000", f"steps: 1000\n      {cut}"))
    found = rows(capsys, str(job), "--sku", "h100-80gb", "--workers", "8")[0]
    assert found["strategy"]["sequenceParallel"] is True
    assert layout_text(found).endswith("tensor 4, tokens in slices")


def test_a_well_known_model_is_planned_without_asking_anybody(
    job: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda *_, **__: pytest.fail("the hub was asked"))
    job.write_text(JOB.replace("./model", "Qwen/Qwen2.5-7B"))
    assert {row["task"] for row in rows(capsys, str(job), "--workers", "8") if row["fits"]} == {"train", "judge"}


@pytest.mark.parametrize(("source", "task", "why"), [("hf://a/b", "epochs: 1", "downloaded"), ("s3://a/b.jsonl", "steps: 10", "not read")])
def test_what_would_have_to_be_fetched_is_not(job: Path, capsys: pytest.CaptureFixture[str], source: str, task: str, why: str) -> None:
    job.write_text(JOB.replace("chats.jsonl", source).replace("steps: 1000", task))
    train = rows(capsys, str(job), "--workers", "8")[0]
    assert why in train["length_unknown"]
    assert (train["duration_s"] is None) == ("epochs" in task)


@pytest.fixture
def other_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without GPUs, whose user has given and measured nothing."""
    monkeypatch.delenv("TUNEYARD_GPUS", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


def test_consumer_cards_and_amd_are_planned_by_any_name(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lora = JOB.replace("      steps: 1000", "      method: {lora: {rank: 16}}\n      steps: 1000")
    job.write_text(lora.replace("[a100-80gb, h100-80gb]", "['4090', MI300X]").replace("[h100-80gb]", "[AMD_Instinct_MI300X_OAM]"))
    assert main(["validate", str(job)]) == 0
    capsys.readouterr()
    found = [row for row in rows(capsys, str(job), "--workers", "8", "--price", "mi300x=2", "--price", "4090=0.4") if row["fits"]]
    assert [(row["task"], row["sku"]) for row in found] == [
        ("train", "rtx-4090-24gb"),
        ("train", "mi300x-192gb"),
        ("judge", "mi300x-192gb"),
    ]
    card, oam, _ = found
    assert card["memory_gb"]["total"] < 24 < oam["memory_gb"]["total"]
    assert 5 < oam["tokens_per_s"] / card["tokens_per_s"] < 20
    assert (card["strategy"]["precision"], card["peak_from"], card["cost_per_hour"]) == ("bf16", "datasheet", 8 * 0.4)


def test_on_cpu_no_more_workers_are_planned_than_there_are_cores(
    job: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def counts(*argv: str) -> list[int]:
        assert main(["plan", str(job), *argv, "-o", "json"]) in (0, 1)  # whether it fits depends on this machine's memory
        return [row["workers"] for row in json.loads(capsys.readouterr().out) if row["task"] == "train"]

    monkeypatch.setattr("tuneyard.cli.plan.rows.usable_cores", lambda: 2)
    assert counts("--sku", "cpu") == [1, 2]
    assert counts("--sku", "cpu", "--workers", "4") == [4]
    assert counts("--sku", "h100-80gb") == [1, 2, 4, 8]


def test_only_runs_that_calibrate_a_planned_sku_are_counted() -> None:
    past = _Past(runs={"cpu": 1, "h100-80gb": 3}, imported={"h100-80gb": 2})
    planned = [{"sku": "h100-80gb", "tokens_per_s": 5.0}, {"sku": "a100-80gb", "tokens_per_s": 4.0}, {"sku": "cpu", "tokens_per_s": None}]
    assert _calibration_lines(planned, past) == ["speeds on h100-80gb are calibrated by 3 runs of your history, 2 of them imported"]
    assert _calibration_lines(planned, _Past(runs={"cpu": 1})) == []
    assert _calibration_lines([{"sku": "cpu", "tokens_per_s": 1.0}, {"task": "later"}], past) == [
        "speeds on cpu are calibrated by 1 run of your history"
    ]


def test_an_unknown_card_has_near_names_and_a_way_on(job: Path, other_machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(job), "--sku", "rtx-4091"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "unknown SKU 'rtx-4091'" in said
    assert "use rtx-4090-24gb" in said
    assert "a machine that has this GPU measures it" in said
    assert f"write its figures into {other_machine}/config/tuneyard/gpus.yaml: docs/extending/gpu-kind.md" in said


def test_figures_that_were_given_by_hand_are_planned_with_and_said(
    job: Path, other_machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = other_machine / "config" / "tuneyard" / "gpus.yaml"
    file.parent.mkdir(parents=True)
    peaks = "{fp32: 156, fp16: 312, bf16: 312}"
    file.write_text(f"gpus:\n- {{name: rtx-4091, memoryGb: 80, memoryBandwidthGbPerS: 2039, architecture: sm80, peakTflops: {peaks}}}\n")
    assert main(["plan", str(job), "--sku", "rtx-4091", "--workers", "8"]) == 0
    assert "rtx-4091: mfu is of a peak that was given by hand" in " ".join(capsys.readouterr().out.split())


def test_the_card_of_this_machine_is_measured_and_said(
    job: Path, other_machine: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = other_machine / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'GPU-1, NVIDIA GeForce RTX 9090, 49140, 13.0'\n")
    program.chmod(0o755)
    monkeypatch.setattr("tuneyard.catalog.measured.run_measurement", lambda *_args, **_more: MEASURED)
    job.write_text(JOB.replace("    resources: {sku: [a100-80gb, h100-80gb]}\n", ""))
    assert main(["plan", str(job), "--workers", "8"]) == 0
    said = capsys.readouterr()
    assert "measuring rtx-9090-48gb, which the catalog lacks: up to a minute, once on this machine" in said.err
    assert "rtx-9090-48gb: mfu is of the measured peak" in " ".join(said.out.split())
    assert main(["plan", str(job), "--workers", "8"]) == 0
    assert "measuring" not in capsys.readouterr().err


def test_a_sweep_shows_what_settings_are_worth(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["plan", str(job), "--sku", "h100", "--workers", "8", "--sweep", "flash, offload"]
    assert main([*arguments, "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["sweep"] for row in rows] == [{"flash": f, "offload": o} for f in ("eager", "flash") for o in ("none", "cpu")]
    assert rows[0]["speedup"] == 1
    assert rows[2]["speedup"] > 1
    assert rows[2]["micro_batch"] >= rows[0]["micro_batch"]
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "train on 8 x h100-80gb: each at its largest micro-batch, without accumulation"
    assert [line.split()[:2] for line in lines[2:7]] == [
        ["flash", "offload"],
        *([f, o] for f in ("eager", "flash") for o in ("none", "cpu")),
    ]
    assert all("█" in line for line in lines[3:7])


def test_a_sweep_refuses_what_it_does_not_know_and_ends_with_1_where_nothing_fits(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(job), "--sweep", "fash"]) == 2
    assert "--sweep fash is no setting to sweep" in capsys.readouterr().err
    assert main(["plan", str(job), "--sku", "t4", "--workers", "1", "--sweep", "recompute"]) == 1
    assert "recompute no; recompute yes: not one row fits" in capsys.readouterr().out


def test_a_sweep_of_refused_placements_says_why(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(JOB.replace("      steps: 1000\n", "      steps: 1000\n      strategy: {precision: fp16}\n"))
    assert main(["plan", str(job), "--sku", "cpu", "--workers", "1", "--sweep", "flash"]) == 1
    said = capsys.readouterr().out
    assert "fp16 training on cpu" in said
    assert "no train, rank or score task" not in said


def test_an_adapter_that_is_not_whole_is_refused_before_anything_starts(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    about = {"peft_type": "LORA", "r": 8, "target_modules": ["q_proj"], "base_model_name_or_path": str(tmp_path / "model")}
    (adapter / "adapter_config.json").write_text(json.dumps(about))
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora"
    save_file(
        {f"{name}_A.weight": np.ones((4, 8), np.float32), f"{name}_B.weight": np.ones((8, 4), np.float32)},
        adapter / "adapter_model.safetensors",
    )
    job.write_text(JOB.replace("./model", "./adapter"))
    assert main(["plan", str(job)]) == 2
    assert "says rank 8 for model.layers.0.self_attn.q_proj, and its weights have rank 4" in capsys.readouterr().err
    assert main(["validate", str(job)]) == 0
    assert "and its weights have rank 4" in capsys.readouterr().err
