"""`tuneyard validate` and `tuneyard plan` name rows that a model cannot take, where its config.json is at hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.zoo import findings

from tuneyard.api.rules_table import LEAKING_MODEL_TYPES
from tuneyard.catalog.rows import LEAKING_WITHOUT_FLASH, positions_of
from tuneyard.cli import main

JOB = """\
apiVersion: tuneyard.dev/v1alpha1
kind: JobSpec
metadata: {name: small}
spec:
  tasks:
  - name: train
    train:
      model: {name: MODEL}
      data: {source: chats.jsonl, maxLength: LENGTH, pack: PACK}
      steps: 3
    resources: {sku: [cpu]}
"""
GPT2 = {"model_type": "gpt2", "n_positions": 1024, "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 384}
LLAMA = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 384}


def checked(
    folder: Path, capsys: Any, config: dict[str, Any] | None, *, model: str = "./model", length: int = 64, pack: bool = False
) -> Any:
    """Exit code and stderr of `tuneyard validate`."""
    (folder / "model").mkdir(exist_ok=True)
    (folder / "model" / "config.json").write_text(json.dumps(config or {}))
    (folder / "chats.jsonl").write_text('{"prompt": "2 + 2?", "completion": "4"}\n')
    text = JOB.replace("MODEL", model).replace("LENGTH", str(length)).replace("PACK", str(pack).lower())
    (folder / "job.yaml").write_text(text)
    code = main(["validate", str(folder / "job.yaml")])
    return code, capsys.readouterr().err


def test_samples_beyond_the_positions_of_a_model_are_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, told = checked(tmp_path, capsys, GPT2, length=2048)
    assert code == 0
    assert "job.yaml:9:35: spec.tasks[0].train.data.maxLength: 2,048 tokens, and the model has 1,024 positions" in told
    assert "Set data.maxLength to 1024" in told
    assert main(["plan", str(tmp_path / "job.yaml")]) == 0
    assert "spec.tasks[0].train.data.maxLength: 2,048 tokens" in capsys.readouterr().err

    assert checked(tmp_path, capsys, GPT2, length=1024) == (0, "")
    code, told = checked(tmp_path, capsys, None, model="Qwen/Qwen2.5-0.5B", length=65536)
    assert (code, "the model has 32,768 positions" in told) == (0, True)


def test_a_later_task_takes_the_rows_of_the_first_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checked(tmp_path, capsys, GPT2)
    second = "  - {name: second, train: {model: {from: train}, data: {source: chats.jsonl, maxLength: 4096}}}\n"
    with (tmp_path / "job.yaml").open("a") as file:
        file.write(second)
    main(["validate", str(tmp_path / "job.yaml")])
    assert "spec.tasks[1].train.data.maxLength: 4,096 tokens" in capsys.readouterr().err


def test_packing_that_leaks_is_said_before_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, told = checked(tmp_path, capsys, {**LLAMA, "model_type": "gpt_oss"}, pack=True)
    assert (code, "packed samples of a gpt_oss model see each other" in told) == (0, True)
    code, told = checked(tmp_path, capsys, {**LLAMA, "model_type": "mamba2"}, pack=True)
    assert (code, "packing with a model that would leak across samples" in told) == (2, True)
    assert checked(tmp_path, capsys, {**LLAMA, "model_type": "llama"}, pack=True) == (0, "")


@pytest.mark.parametrize("text", ["{", "[]", '{"max_position_embeddings": "many", "model_type": 3}'])
def test_a_config_that_cannot_be_read_says_nothing(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checked(tmp_path, capsys, None)
    (tmp_path / "model" / "config.json").write_text(text)
    assert main(["validate", str(tmp_path / "job.yaml")]) == 0
    assert capsys.readouterr().err == ""


def test_positions_of_parts_of_a_model() -> None:
    assert positions_of({"text_config": {"max_position_embeddings": 7}, "max_position_embeddings": 9}) == 7
    assert positions_of({"text_config": {"hidden_size": 7}, "n_positions": 9}) == 9
    assert positions_of({"max_position_embeddings": None}) is None


def test_all_classes_that_leak_are_named() -> None:
    """The zoo has packed every class of transformers."""
    leaking = {kind for kind, found in findings.read().items() if "see each other" in str((found.get("packed") or {}).get("words"))}
    known = LEAKING_MODEL_TYPES | LEAKING_WITHOUT_FLASH
    assert leaking <= known
    assert leaking >= LEAKING_WITHOUT_FLASH
