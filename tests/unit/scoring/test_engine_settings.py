"""What an engine is built from, and which adapters it can apply."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tuneyard.api import BadInput, ScoreTask, load_jobspec
from tuneyard.catalog import shape_from_folder
from tuneyard.cli import main
from tuneyard.scoring.adapter import read_adapter
from tuneyard.scoring.engine import engine_arguments
from tuneyard.scoring.settings import EngineSettings, resolve_engine

LLAMA = {
    "model_type": "llama", "vocab_size": 384, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 16384,
}  # fmt: skip


def resolve(folder: Path, *, sku: str = "cpu", adapter: Path | None = None, **engine: Any) -> EngineSettings:
    (folder / "config.json").write_text(json.dumps(LLAMA))
    task = ScoreTask.model_validate({"model": {"name": "m"}, "data": {"source": "x"}, "engine": engine})
    return resolve_engine(task, folder, shape_from_folder(folder), adapter, sku=sku)


def write_adapter(folder: Path, modules: tuple[str, ...] = ("q_proj", "v_proj"), **changes: Any) -> Path:
    folder.mkdir(exist_ok=True)
    config = {"peft_type": "LORA", "r": 12, "lora_alpha": 24, "bias": "none", "target_modules": [*modules]} | changes
    (folder / "adapter_config.json").write_text(json.dumps(config))
    weights = {}
    for name in (f"base_model.model.model.layers.0.self_attn.{module}.lora" for module in modules):
        weights |= {f"{name}_A.weight": np.zeros((config["r"], 4), np.float32), f"{name}_B.weight": np.zeros((4, config["r"]), np.float32)}
    save_file(weights, folder / "adapter_model.safetensors")
    return folder


def test_on_cpu_an_engine_starts_fast_in_fp32_with_room_for_its_batch(tmp_path: Path) -> None:
    settings = resolve(tmp_path, batch=8)

    per_token = 2 * 2 * (16 + 16) * 4  # layers, kv heads, key and value width, bytes
    assert (settings.precision, settings.eager, settings.max_length) == ("fp32", True, 8192)
    assert settings.kv_cache_bytes is not None
    assert settings.kv_cache_bytes >= 8 * 8192 * per_token


def test_compilation_on_cpu_can_be_asked_for(tmp_path: Path) -> None:
    assert not resolve(tmp_path, eager=False).eager


@pytest.mark.parametrize(("sku", "precision"), [("h100-80gb", "bf16"), ("v100-16gb", "fp16")])
def test_on_gpus_precision_follows_the_device_and_the_cache_its_memory(tmp_path: Path, sku: str, precision: str) -> None:
    settings = resolve(tmp_path, sku=sku)

    assert (settings.precision, settings.eager, settings.kv_cache_bytes) == (precision, False, None)


def test_a_length_that_the_model_was_not_built_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="16384 positions"):
        resolve(tmp_path, maxLength=20000)


def test_the_tokenizer_beside_the_adapter_is_the_one_that_training_used(tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path / "adapter")
    (adapter / "tokenizer_config.json").write_text("{}")

    settings = resolve(tmp_path, adapter=adapter)

    assert settings.tokenizer == str(adapter)
    assert settings.adapter is not None
    assert settings.adapter.engine_rank == 16


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"use_dora": True}, "DoRA"),
        ({"modules_to_save": ["lm_head"]}, "lm_head"),
        ({"bias": "all"}, "biases"),
        ({"peft_type": "IA3"}, "IA3"),
        ({"r": 1024}, "1024"),
    ],
)
def test_an_adapter_that_engines_cannot_apply_has_to_be_merged(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadInput, match=reason) as refused:
        read_adapter(write_adapter(tmp_path / "adapter", **changes))
    assert "merge: true" in refused.value.next_step


def test_likelihoods_are_refused_where_the_head_is_adapted(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    adapter = write_adapter(tmp_path / "adapter", ("q_proj", "lm_head"))
    fields = {"model": {"name": "m"}, "data": {"source": "x", "reference": "y"}, "metrics": ["perplexity"]}

    with pytest.raises(BadInput, match="lm_head"):
        resolve_engine(ScoreTask.model_validate(fields), tmp_path, shape_from_folder(tmp_path), adapter, sku="cpu")


def test_targets_written_as_a_pattern_are_read_from_the_weights(tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path, ("q_proj", "o_proj"), target_modules=".*attn.*")
    assert read_adapter(adapter).targets == ("o_proj", "q_proj")


def test_a_folder_without_an_adapter_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="holds no adapter"):
        read_adapter(tmp_path)


def test_an_automatic_batch_fills_the_cache(tmp_path: Path) -> None:
    """A sequence of 512 + 256 tokens takes 8 blocks of 128 tokens, each of 512 bytes."""
    sequence = 8 * 128 * 2 * 2 * (16 + 16) * 4
    settings = resolve(tmp_path, batch="auto", kvCache=str(10 * sequence + 1))

    assert settings.batch == 10
    assert resolve(tmp_path, batch="auto").batch == 256
    assert resolve(tmp_path, batch="auto", kvCache="1k").batch == 1
    assert resolve(tmp_path, batch="auto", sku="h100-80gb").batch == 256


JOB = """\
apiVersion: tuneyard.dev/v1alpha1
kind: JobSpec
metadata: {name: judge}
spec:
  tasks:
  - name: judge
    score:
      model: {name: ./model}
      data: {source: rows.jsonl, prompt: question}
    resources: {sku: [SKU]}
"""


@pytest.mark.parametrize(
    ("sku", "tokens"), [("h100-80gb", 16384), ("h200-141gb", 16384), ("a100-80gb", 8192), ("l40s-48gb", 8192), ("cpu", 4096)]
)
def test_the_plan_and_the_engine_take_steps_of_the_same_tokens(
    sku: str, tokens: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps({**LLAMA, "hidden_size": 256}))
    (tmp_path / "rows.jsonl").write_text('{"question": "why?"}\n')
    file = tmp_path / "job.yaml"
    file.write_text(JOB.replace("SKU", sku))
    main(["plan", str(file), "-o", "json"])
    (planned,) = json.loads(capsys.readouterr().out)
    task = load_jobspec(file).spec.task("judge").score
    assert task is not None
    settings = resolve_engine(task, tmp_path / "model", shape_from_folder(tmp_path / "model"), None, sku=sku)
    assert planned["step_tokens"] == settings.step_tokens == engine_arguments(settings)["max_num_batched_tokens"] == tokens


def test_a_step_has_a_token_for_each_sequence_and_no_more_than_all_of_them(tmp_path: Path) -> None:
    assert resolve(tmp_path, batch=4, maxLength=100).step_tokens == 400
    assert resolve(tmp_path, batch=5000, maxLength=100).step_tokens == 5000
