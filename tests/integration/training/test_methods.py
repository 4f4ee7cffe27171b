"""What is trained (full, LoRA, QLoRA, DoRA), for which objective, and that what is saved loads and is what was trained."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftConfig, PeftModel
from tests.builders.models import cpu_plan, train_request, train_task
from tests.integration.training.conftest import Material
from transformers import AutoModelForCausalLM, AutoTokenizer

from tuneyard.api import BadInput
from tuneyard.tracking.events import Event, Warned
from tuneyard.training import TrainRequest, TrainResult, train

LORA = {"lora": {"rank": 4, "merge": True}}


def request_of(folder: Path, material: Material, *, plan: dict[str, Any] | None = None, **task: Any) -> TrainRequest:
    return train_request(folder, train_task(material.model, material.text, **task), cpu_plan(**(plan or {})))


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model.eval()(torch.arange(2, 26).reshape(2, 12)).logits
    return found


def learned(result: TrainResult) -> bool:
    return result.losses[-1] < result.losses[0]


@pytest.fixture(scope="module", params=["lora", "dora"])
def plain(
    request: pytest.FixtureRequest, material: Material, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], TrainResult]:
    """An adapter's task, and what it comes to without ZeRO."""
    task = {"method": {request.param: {"rank": 4}}, "optimizer": {"learningRate": 1e-2}, "steps": 3}
    return task, train(request_of(tmp_path_factory.mktemp(request.param), material, **task))


@pytest.mark.parametrize("zero", [2, 3])
def test_an_adapter_learns_the_same_under_every_stage(
    zero: int, plain: tuple[dict[str, Any], TrainResult], material: Material, tmp_path: Path
) -> None:
    task, alone = plain

    result = train(request_of(tmp_path / "zero", material, plan={"zero": zero}, **task))

    assert learned(alone)
    assert result.losses == pytest.approx(alone.losses, rel=1e-3)
    base = AutoModelForCausalLM.from_pretrained(material.model)
    adapted = PeftModel.from_pretrained(base, result.adapter_uri)
    assert adapted.peft_config["default"].base_model_name_or_path == str(material.model)


@pytest.fixture(scope="module")
def first(material: Material, tmp_path_factory: pytest.TempPathFactory) -> TrainResult:
    """An adapter, and the weights that it was merged into."""
    return train(request_of(tmp_path_factory.mktemp("first"), material, method=LORA, optimizer={"learningRate": 1e-2}))


def test_merged_weights_answer_as_the_adapter_on_its_base(first: TrainResult, material: Material) -> None:
    adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(material.model), first.adapter_uri)
    merged = AutoModelForCausalLM.from_pretrained(first.merged_uri)
    torch.testing.assert_close(logits(merged), logits(adapted), rtol=1e-4, atol=1e-4)


def test_qlora_learns_in_four_bits_and_merges_into_what_they_stand_for(material: Material, tmp_path: Path) -> None:
    method = {"qlora": {"rank": 4, "merge": True}}
    result = train(request_of(tmp_path, material, method=method, optimizer={"learningRate": 1e-2}))

    assert learned(result)
    merged = AutoModelForCausalLM.from_pretrained(result.merged_uri)
    original = AutoModelForCausalLM.from_pretrained(material.model)
    assert not any(parameter.dtype == torch.uint8 for parameter in merged.parameters())
    assert (logits(merged) - logits(original)).abs().max() > 0


def test_an_adapter_can_be_continued(first: TrainResult, material: Material, tmp_path: Path) -> None:
    task = train_task(material.model, material.text, method=LORA, optimizer={"learningRate": 1e-2})
    second = train(train_request(tmp_path / "second", task, adapter_uri=first.adapter_uri))

    assert second.losses[0] < first.losses[0]


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ({"lora": {"rank": 8}}, "has rank 4, and the task asks for 8"),
        ({"lora": {"alpha": 99}}, "has alpha 8, and the task asks for 99"),
        ({"lora": {"targets": ["q_proj"]}}, ", and the task asks for q_proj"),
        ({"lora": {"saveModules": ["lm_head"]}}, "has saveModules none, and the task asks for lm_head"),
        ({"dora": {}}, "is a lora adapter, and the task's method is dora"),
    ],
)
def test_settings_that_a_continued_adapter_does_not_have_are_refused(
    method: dict[str, Any], words: str, first: TrainResult, material: Material, tmp_path: Path
) -> None:
    task = train_task(material.model, material.text, method=method)

    with pytest.raises(BadInput) as error:
        train(train_request(tmp_path, task, adapter_uri=first.adapter_uri))

    assert words in error.value.cause
    assert "merge" in error.value.next_step


def test_a_continued_adapter_keeps_what_the_task_leaves_out_and_says_so_and_takes_dropout(
    first: TrainResult, material: Material, tmp_path: Path
) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(material.model, copied)
    task = train_task(copied, material.text, method={"lora": {"targets": "all-linear", "dropout": 0.2}}, steps=2)
    heard: list[Event] = []

    second = train(train_request(tmp_path / "second", task, adapter_uri=first.adapter_uri), emit=heard.append)

    said = " | ".join(event.message for event in heard if isinstance(event, Warned))
    assert "has dropout 0, and the task asks for 0.2, which counts from here on" in said
    assert "keeps its own settings: rank 4, alpha 8" in said
    assert f"was trained on {material.model}, and the task adds it to {copied}" in said
    config = PeftConfig.from_pretrained(str(second.adapter_uri))
    assert (config.r, config.lora_alpha, config.lora_dropout) == (4, 8, 0.2)


def test_an_adapter_of_a_whole_base_that_goes_on_in_four_bits_is_said(first: TrainResult, material: Material, tmp_path: Path) -> None:
    task = train_task(material.model, material.text, method={"qlora": {"rank": 4, "alpha": 8}}, steps=1)
    heard: list[Event] = []

    train(train_request(tmp_path / "second", task, adapter_uri=first.adapter_uri), emit=heard.append)

    said = " | ".join(event.message for event in heard if isinstance(event, Warned))
    assert "was trained on its base whole, and the task takes the base in 4 bits, with other logits" in said


def test_full_training_can_start_from_an_adapter(first: TrainResult, material: Material, tmp_path: Path) -> None:
    task = train_task(material.model, material.text)
    second = train(train_request(tmp_path / "second", task, cpu_plan(zero=3), adapter_uri=first.adapter_uri))

    assert second.losses[0] < first.losses[0]
    assert AutoModelForCausalLM.from_pretrained(second.model_uri).num_parameters() > 0


def test_a_model_from_scratch_starts_the_same_everywhere(material: Material, tmp_path: Path) -> None:
    model = {"name": str(material.model), "init": "scratch"}

    plain = train(request_of(tmp_path / "plain", material, model=model, steps=2))
    sharded = train(request_of(tmp_path / "sharded", material, model=model, steps=2, plan={"zero": 3}))

    assert sharded.losses == pytest.approx(plain.losses, rel=1e-3)


@pytest.mark.parametrize("zero", [0, 2, 3])
def test_bf16_saves_all_weights_in_bf16(zero: int, material: Material, tmp_path: Path) -> None:
    result = train(request_of(tmp_path, material, plan={"zero": zero, "precision": "bf16"}, steps=2))

    model = AutoModelForCausalLM.from_pretrained(result.model_uri, dtype="auto")
    assert model.dtype == torch.bfloat16
    assert model.num_parameters() == AutoModelForCausalLM.from_pretrained(material.model).num_parameters()
    assert all(tensor.numel() > 0 for tensor in model.state_dict().values())


def test_recomputing_activations_changes_no_loss(material: Material, tmp_path: Path) -> None:
    plain = train(request_of(tmp_path / "plain", material, method=LORA, steps=3))

    for zero in (0, 3):
        result = train(request_of(tmp_path / f"{zero}", material, method=LORA, steps=3, plan={"zero": zero, "recompute": True}))
        assert result.losses == pytest.approx(plain.losses, rel=1e-3)


@pytest.mark.parametrize("zero", [0, 3])
def test_preferences_are_learned(zero: int, material: Material, tmp_path: Path) -> None:
    data = {"source": str(material.preferences), "maxLength": 64, "validationFraction": 0.2}
    task = train_task(material.model, material.preferences, objective="dpo", data=data)

    result = train(train_request(tmp_path, task, cpu_plan(zero=zero)))

    assert result.losses[0] == pytest.approx(0.6931, abs=1e-3)  # ln 2: the model is still its own reference
    assert learned(result)
    assert len(result.eval_losses) == 1


def test_the_saved_folder_holds_all_that_serving_needs(material: Material, tmp_path: Path) -> None:
    task = train_task(material.model, material.chats, objective="sft", data={"source": str(material.chats), "maxLength": 64})

    result = train(train_request(tmp_path, task))

    assert result.model_uri is not None
    folder = Path(result.model_uri)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.apply_chat_template([{"role": "user", "content": "the cat"}], tokenize=False).startswith("<|user|>")
    assert AutoModelForCausalLM.from_pretrained(folder).config.use_cache
    assert (folder / "generation_config.json").is_file()
    assert f"{result.losses[-1]:.4g}" in (folder / "README.md").read_text()


@pytest.mark.parametrize("optimizer", ["adamw-8bit", "adafactor", "sgd"])
def test_other_optimizers_train(optimizer: str, material: Material, tmp_path: Path) -> None:
    settings = {"name": optimizer, "learningRate": 0.1 if optimizer == "sgd" else 1e-3, "schedule": "wsd"}

    assert learned(train(request_of(tmp_path, material, optimizer=settings)))
