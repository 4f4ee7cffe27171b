"""What is saved is what was trained: folders that differ are not committed, and whatever a base model came with is saved again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from safetensors.torch import load_file, save_file
from tests.builders.checkpoints import committed
from tests.builders.models import cpu_plan, train_request, train_task, write_model, write_text
from tests.integration.training.conftest import Material
from tests.zoo.configs import tiny_config_of
from transformers import AutoModelForCausalLM, GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from tuneyard.api import JobFailed, TrainTask
from tuneyard.training import TrainResult, train

FULL: dict[str, Any] = {"full": {}}
LORA: dict[str, Any] = {"lora": {"rank": 4}}
MERGED: dict[str, Any] = {"lora": {"rank": 4, "merge": True}}
Tensors = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Biases, a head of its own, and a window shorter than the row that is compared."""
    return write_model(tmp_path_factory.mktemp("model"), "qwen2", use_sliding_window=True, sliding_window=16, max_window_layers=0)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "text.jsonl")


def trained(folder: Path, model: Path, text: Path, method: dict[str, Any], **task: Any) -> TrainResult:
    fields = {"method": method, "steps": 2, "optimizer": {"learningRate": 1e-2}, "checkpoint": {"everySteps": 2}, **task}
    return train(train_request(folder, train_task(model, text, **fields), cpu_plan()))


def in_weights(change: Callable[[Tensors], object]) -> Callable[[Path], None]:
    """A fault in the files of weights of a folder."""

    def of(folder: Path) -> None:
        (file,) = folder.glob("*.safetensors")
        weights = load_file(file)
        change(weights)
        save_file(weights, file, {"format": "pt"})

    return of


def in_config(name: str = "config.json", **changes: Any) -> Callable[[Path], None]:
    def of(folder: Path) -> None:
        config = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**config, **changes}))

    return of


def in_turn(*faults: Callable[[Path], None]) -> Callable[[Path], None]:
    def of(folder: Path) -> None:
        for fault in faults:
            fault(folder)

    return of


BIAS, NORM, HEAD = "model.layers.0.self_attn.q_proj.bias", "model.norm.weight", "lm_head.weight"
SQUARE, LORA_B = "model.layers.1.self_attn.o_proj.weight", "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight"
FAULTS = {
    "a bias is dropped": (FULL, in_weights(lambda t: t.pop(BIAS)), r"saved model .* 1 weights are missing"),
    "a weight is made up": (FULL, in_weights(lambda t: t.update(extra=torch.ones(2))), r"1 weights are unexpected \(extra\)"),
    "a weight is cut": (FULL, in_weights(lambda t: t.update({NORM: t[NORM][:32].clone()})), r"mismatched|does not load"),
    "a weight is of another dtype": (FULL, in_weights(lambda t: t.update({NORM: t[NORM].half()})), rf"1 of \d+ weights differ \({NORM}\)"),
    "a square weight is transposed": (FULL, in_weights(lambda t: t.update({SQUARE: t[SQUARE].T.contiguous()})), rf"differ \({SQUARE}\)"),
    "the head is tied": (
        FULL,
        in_turn(in_config(tie_word_embeddings=True), in_weights(lambda t: t.pop(HEAD))),
        r"tie_word_embeddings of its configuration",
    ),
    "two weights are exchanged": (
        FULL,
        in_weights(lambda t: t.update({HEAD: t["model.embed_tokens.weight"], "model.embed_tokens.weight": t[HEAD]})),
        r"2 of \d+ weights differ",
    ),
    "one number is off by a bit": (FULL, in_weights(lambda t: t[NORM].view(torch.int32)[:1].add_(1)), r"1 of \d+ weights differ"),
    "a layer is left out": (FULL, in_config(num_hidden_layers=1, layer_types=["sliding_attention"]), r"12 weights are unexpected"),
    "a configuration that cannot be read": (FULL, in_config(num_hidden_layers=1), r"transformers does not load it"),
    "another activation": (FULL, in_config(hidden_act="relu"), r"hidden_act of its configuration was .silu. and is .relu."),
    "another base of the rotation": (
        FULL,
        in_config(rope_parameters={"rope_type": "default", "rope_theta": 100.0}),
        r"rope_parameters of its configuration",
    ),
    "another mask": (FULL, in_config(sliding_window=4), r"sliding_window of its configuration was 16 and is 4"),
    "a stale adapter": (LORA, in_weights(lambda t: t[LORA_B].zero_()), r"saved adapter .* 1 of \d+ weights differ"),
    "an adapter without a weight": (LORA, in_weights(lambda t: t.pop(LORA_B)), r"saved adapter .* 1 of \d+ weights differ"),
    "another base": (
        LORA,
        in_config("adapter_config.json", base_model_name_or_path="other"),
        r"base_model_name_or_path was .* and is 'other'",
    ),
    "another scale": (LORA, in_config("adapter_config.json", lora_alpha=1), r"its setting lora_alpha was 8 and is 1"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_folder_that_holds_another_model_is_not_committed(
    fault: str, model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a library does that saves something else. What is saved before training is left alone."""
    method, plant, words = FAULTS[fault]
    kind = PeftModel if method is LORA else PreTrainedModel
    save = kind.save_pretrained

    def save_another(self: Any, folder: Any, *arguments: Any, **options: Any) -> None:
        save(self, folder, *arguments, **options)
        plant(Path(folder))

    monkeypatch.setattr(kind, "save_pretrained", save_another)

    with pytest.raises(JobFailed, match=words):
        trained(tmp_path, model, text, method)

    assert committed(tmp_path / "out") == [2]
    assert not (tmp_path / "out" / "model").exists()


def test_a_tokenizer_that_is_saved_otherwise_is_not_committed(
    model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = PreTrainedTokenizerBase.save_pretrained

    def save_another(self: Any, folder: Any, *arguments: Any, **options: Any) -> Any:
        made = save(self, folder, *arguments, **options)
        file = Path(folder) / "tokenizer.json"
        values = json.loads(file.read_text())
        vocabulary = values["model"]["vocab"]
        vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
        file.write_text(json.dumps(values))
        return made

    monkeypatch.setattr(PreTrainedTokenizerBase, "save_pretrained", save_another)

    with pytest.raises(JobFailed, match="the saved tokenizer is not what was trained: its vocabulary is another"):
        trained(tmp_path, model, text, FULL)

    assert not (tmp_path / "out" / "model").exists()


def test_scores_that_eager_attention_caps_are_no_difference(material: Material, tmp_path: Path) -> None:
    """transformers' default attention leaves the cap out. Large weights make it count."""
    config = tiny_config_of("gemma2")
    config.initializer_range = 0.3
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "base")
    for file in material.model.glob("*token*"):
        (tmp_path / "base" / file.name).write_bytes(file.read_bytes())
    for name, method in (("full", FULL), ("merged", MERGED)):
        task = train_task(tmp_path / "base", material.text, method=method, steps=1)

        train(train_request(tmp_path / name, task, cpu_plan(attention="eager")))


def test_a_merge_that_computes_something_else_is_not_committed(
    model: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delta = {kind: kind.get_delta_weight for kind in LoraLayer.__subclasses__() if hasattr(kind, "get_delta_weight")}
    for kind, right in delta.items():
        monkeypatch.setattr(kind, "get_delta_weight", lambda self, adapter, right=right: 2 * right(self, adapter))

    with pytest.raises(JobFailed, match=r"the saved merged is not what was trained: its logits differ"):
        trained(tmp_path, model, text, MERGED)

    assert not (tmp_path / "out" / "model").exists()
    assert not (tmp_path / "out" / "merged").exists()


def test_the_report_says_what_was_proven(model: Path, text: Path, tmp_path: Path) -> None:
    merged = trained(tmp_path / "merged", model, text, MERGED).details["proof"]
    skipped = trained(tmp_path / "skipped", model, text, FULL, proof="skip").details["proof"]

    assert merged["adapter"] < 1e-6
    assert merged["merged"] < 1e-5
    assert merged["sentence"].startswith("saved = trained: adapter exactly, merged model to ")
    assert skipped["sentence"] == "proof: skip, so what is saved was not compared with what was trained"


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_merged_qlora_is_loaded_as_any_model(kind: str, text: Path, tmp_path: Path) -> None:
    """GPT-2 keeps its matrices transposed, and dequantization gives them in torch's form."""
    result = trained(tmp_path, write_model(tmp_path / "base", kind), text, {"qlora": {"rank": 4, "merge": True}})

    assert result.details["proof"]["merged"] < 1e-5
    assert result.merged_uri is not None
    AutoModelForCausalLM.from_pretrained(result.merged_uri)


SETTINGS = {
    "sampling without do_sample": {"do_sample": False, "temperature": 0.6, "top_p": 0.9},
    "beams of one": {"num_beams": 1, "early_stopping": True, "length_penalty": 0.0},
    "a cold temperature": {"temperature": 1e-6},
}


@pytest.mark.parametrize("settings", SETTINGS)
def test_settings_that_transformers_will_not_write_are_saved_again(settings: str, text: Path, tmp_path: Path) -> None:
    base = write_model(tmp_path / "base")
    (base / "generation_config.json").write_text(json.dumps({"eos_token_id": 0, **SETTINGS[settings]}))
    with pytest.raises(ValueError, match="invalid"):
        GenerationConfig.from_pretrained(base).save_pretrained(tmp_path / "refused")

    full, merged = (trained(tmp_path / name, base, text, method) for name, method in (("full", FULL), ("merged", MERGED)))

    for folder in (full.model_uri, merged.merged_uri):
        saved = json.loads((Path(str(folder)) / "generation_config.json").read_text())
        assert {name: saved.get(name) for name in SETTINGS[settings]} == SETTINGS[settings]


@pytest.mark.parametrize("kind", ["mixtral", "gemma3_text", pytest.param("phi3", marks=pytest.mark.long)])
@pytest.mark.parametrize("zero", [0, 3])
def test_models_are_proven_under_each_layout(kind: str, zero: int, material: Material, tmp_path: Path) -> None:
    """Experts are stacked in memory and apart on disk, and heads are tied."""
    folder = tmp_path / "base"
    AutoModelForCausalLM.from_config(tiny_config_of(kind)).save_pretrained(folder)
    for file in material.model.glob("*token*"):
        (folder / file.name).write_bytes(file.read_bytes())
    for name, method in (("full", FULL), ("merged", MERGED)):
        task: TrainTask = train_task(folder, material.text, method=method, steps=1)

        result = train(train_request(tmp_path / name, task, cpu_plan(zero=zero)))

        proof = result.details["proof"]
        assert max(proof.get(each, 0) for each in ("model", "adapter", "merged")) < 1e-5
