"""Which kernels a plan takes, and what it says about those that it cannot take: from a JobSpec file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tuneyard.api import BadInput, TrainTask
from tuneyard.catalog import gpu, shape_from_config
from tuneyard.cli import main
from tuneyard.planning import resolve
from tuneyard.planning.site import search_of

LLAMA: dict[str, Any] = {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8}
LLAMA |= {"model_type": "llama", "intermediate_size": 8192, "vocab_size": 128256, "max_position_embeddings": 8192}
COHERE = {**LLAMA, "model_type": "cohere", "hidden_size": 4096, "num_hidden_layers": 32, "intermediate_size": 14336, "vocab_size": 256000}
STARCODER2 = {"model_type": "starcoder2", "vocab_size": 49152, "hidden_size": 3072, "num_hidden_layers": 30, "num_attention_heads": 24}
STARCODER2 |= {"num_key_value_heads": 2, "intermediate_size": 12288, "max_position_embeddings": 16384}
STABLELM = {"model_type": "stablelm", "vocab_size": 100352, "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 32}
STABLELM |= {"num_key_value_heads": 32, "intermediate_size": 5632, "max_position_embeddings": 4096}
JOB = """\
apiVersion: tuneyard.dev/v1alpha1
kind: JobSpec
metadata: {name: small}
spec:
  tasks:
  - name: train
    train:
      model: {name: ./model}
      data: {source: texts.jsonl, maxLength: 8192}
      objective: clm
      method: {lora: {rank: 16, targets: TARGETS}}
      batch: {global: 64}
      strategy: {liger: LIGER}
      steps: 10
    resources: {sku: [h100-80gb], workers: 1}
"""


def job(folder: Path, config: dict[str, Any], *, liger: str = "auto", targets: str = "all-linear") -> str:
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(config))
    (folder / "texts.jsonl").write_text('{"text": "a cat"}\n')
    file = folder / "job.yaml"
    file.write_text(JOB.replace("LIGER", liger).replace("TARGETS", targets))
    return str(file)


def planned(capsys: pytest.CaptureFixture[str], file: str) -> dict[str, Any]:
    main(["plan", file, "-o", "json"])
    row: dict[str, Any] = json.loads(capsys.readouterr().out)[0]
    return row


@pytest.mark.parametrize("targets", ["[q_proj, lm_head]", "[q_proj, model.lm_head]", "lm_head"])
def test_auto_leaves_liger_out_beside_an_adapter_on_the_head(targets: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = planned(capsys, job(tmp_path, LLAMA, targets=targets))
    assert row["strategy"]["liger"] is False
    assert "no Liger kernels for an adapter on lm_head, which the fused loss would not train" in row["notes"]


@pytest.mark.parametrize("targets", ["[q_proj, lm_head]", "[q_proj, model.lm_head]", "lm_head", "'q_proj|lm_head'", "'.*'"])
def test_liger_is_refused_beside_an_adapter_on_the_head(targets: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", job(tmp_path, LLAMA, liger="true", targets=targets)]) == 2
    said = capsys.readouterr().err
    assert "Liger kernels beside an adapter that targets lm_head cannot work" in said
    assert "nearest that works: strategy.liger: auto" in said


@pytest.mark.parametrize(
    "targets", ["all-linear", "[q_proj, v_proj]", "[q_proj], saveModules: [lm_head]", "[lm_head], saveModules: [lm_head]"]
)
def test_a_head_that_is_saved_whole_or_left_alone_goes_with_liger(targets: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = job(tmp_path, LLAMA, liger="true", targets=targets)
    assert main(["validate", file]) == 0
    capsys.readouterr()
    assert planned(capsys, file)["strategy"]["liger"] is True


@pytest.mark.parametrize(
    ("config", "most_gb"), [(COHERE, 73.6), (STARCODER2, 73.6), (STABLELM, 73.6)], ids=["cohere", "starcoder2", "stablelm"]
)
def test_a_plan_counts_no_saving_that_liger_does_not_have(
    config: dict[str, Any], most_gb: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = job(tmp_path, config)
    row = planned(capsys, file)
    assert row["strategy"]["liger"] is False
    assert f"no Liger kernels for {config['model_type']}" in row["notes"]
    assert row["memory_gb"]["total"] < most_gb
    logits = row["micro_batch"] * 8192 * config["vocab_size"] * 14 / 1e9
    assert row["memory_gb"]["activations"] > logits or row["memory_gb"]["optimizer_step"] > 0
    main(["plan", file])
    assert f"no Liger kernels for {config['model_type']}" in capsys.readouterr().out


def test_asking_for_liger_on_a_model_without_it_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = planned(capsys, job(tmp_path, COHERE, liger="true"))
    assert row["fits"] is False
    assert row["reason"] == "h100-80gb: liger-kernel has no kernels for a cohere model; set strategy.liger to auto"


def test_granite_keeps_its_logits_beside_ligers_other_kernels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = planned(capsys, job(tmp_path, {**LLAMA, "model_type": "granite"}))
    assert row["strategy"]["liger"] is True
    assert "no fused loss of Liger for granite, so logits are kept" in row["notes"]
    task, shape = search_task(), shape_from_config({**LLAMA, "model_type": "granite"})
    with_, without = (search_of(task, shape, gpu("h100-80gb"), 1, liger_available=liger) for liger in (True, False))
    assert with_.estimate(with_.smallest()).device == without.estimate(without.smallest()).device


def search_task() -> TrainTask:
    data = {"source": "t.jsonl", "maxLength": 8192}
    return TrainTask.model_validate({"model": {"name": "m"}, "data": data, "method": {"lora": {}}, "batch": {"global": 64}})


def test_a_model_that_does_not_fit_is_not_told_to_install_what_would_not_help() -> None:
    task = search_task()
    with pytest.raises(BadInput) as refused:
        resolve(task, shape_from_config({**COHERE, "vocab_size": 2_560_000}), gpu("a100-40gb"), 1)
    assert "liger-kernel" not in str(refused.value)


@pytest.mark.parametrize(
    ("config", "sku", "attention", "note"),
    [
        (LLAMA, "h100-80gb", "flash", None),
        (LLAMA, "v100-32gb", "sdpa", "sdpa attention: v100-32gb has no flash attention"),
        (LLAMA, "mi300x-192gb", "sdpa", "sdpa attention: flash attention on mi300x-192gb needs the package flash-attn"),
        (
            {**LLAMA, "model_type": "gemma2", "head_dim": 64},
            "h100-80gb",
            "eager",
            "eager attention: flash attention of a gemma2 model needs the package flash-attn",
        ),
        ({**LLAMA, "head_dim": 512}, "h100-80gb", "sdpa", "sdpa attention: flash attention has no heads of 512"),
    ],
    ids=["usual", "old", "amd", "capped", "wide"],
)
def test_the_plan_says_which_attention_and_why(
    config: dict[str, Any], sku: str, attention: str, note: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = job(tmp_path, config)
    main(["plan", file, "--sku", sku, "-o", "json"])
    row = json.loads(capsys.readouterr().out)[0]
    assert row["attention"] == attention
    assert [each for each in row["notes"] if "attention" in each] == ([note] if note else [])


def test_asking_for_flash_where_only_its_package_has_it() -> None:
    task = TrainTask.model_validate(
        {**search_task().model_dump(by_alias=True, exclude_unset=True), "model": {"name": "m", "attention": "flash"}}
    )
    gemma2 = shape_from_config({**LLAMA, "model_type": "gemma2", "head_dim": 64})
    assert search_of(task, gemma2, gpu("h100-80gb"), 1, flash_available=True).attention == "flash"
    with pytest.raises(BadInput, match=r"(?s)needs the package flash-attn.*set model.attention to auto"):
        search_of(task, gemma2, gpu("h100-80gb"), 1, flash_available=False)


def test_a_plan_says_that_layers_are_compiled_and_what_the_host_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the layout, in the sentence about durations, and in a column; JSON has the same."""
    file = Path(job(tmp_path, LLAMA))
    strategy = "strategy: {compile: layers, zero: 2, offload: {optimizer: cpu}}"
    file.write_text(
        file.read_text().replace("strategy: {liger: auto}", strategy).replace("lora: {rank: 16, targets: all-linear}", "full: {}")
    )

    assert main(["plan", str(file)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert main(["plan", str(file), "-o", "json"]) == 0
    row = json.loads(capsys.readouterr().out)[0]

    assert "zero 2, compiled layers, optimizer on cpu" in said
    assert "Durations count only the steps, and 60 s of compiling layers" in said
    assert "HOST GB" in said.upper()
    assert (row["strategy"]["compile"], row["compile_s"]) == ("layers", 60)
    assert row["duration_s"] > 60
    assert row["host_memory_gb"] > 20


def test_layers_are_not_compiled_where_only_zero_3_fits_the_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(job(tmp_path, LLAMA))
    strategy = "strategy: {compile: layers, offload: {optimizer: cpu, parameters: cpu}}"
    file.write_text(
        file.read_text().replace("strategy: {liger: auto}", strategy).replace("lora: {rank: 16, targets: all-linear}", "full: {}")
    )

    assert main(["validate", str(file)]) == 2
    assert "ZeRO 3 gathers weights inside each layer" in " ".join(capsys.readouterr().err.split())
