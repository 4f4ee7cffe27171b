"""Shapes from configurations as they are found on disk: published sizes, missing defaults, errors that name what is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from tuneyard.api import BadInput, Method
from tuneyard.catalog import known_config, known_models, published_parameters, shape_from_config, shape_from_folder, trainable_parameters

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}
MIXTRAL = {**LLAMA, "model_type": "mixtral", "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2}
GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "vocab_size": 50257}


@pytest.mark.parametrize(
    ("config", "parameters", "active"),
    [(LLAMA, 8_030_261_248, 8_030_261_248), (MIXTRAL, 46_702_792_704, 12_879_925_248), (GPT2, 124_439_808, 124_439_808)],
    ids=["Llama 3 8B", "Mixtral 8x7B", "GPT-2"],
)
def test_published_models_have_their_published_parameters(config: dict[str, Any], parameters: int, active: int) -> None:
    shape = shape_from_config(config)
    assert (shape.parameters, shape.active_parameters) == (parameters, active)


def test_matmul_parameters_leave_the_embedding_lookup_out_and_the_head_in() -> None:
    shape = shape_from_config(LLAMA)
    assert shape.linear_parameters == shape.parameters - 128256 * 4096 - (2 * 32 + 1) * 4096
    tied = shape_from_config(LLAMA | {"tie_word_embeddings": True})
    assert tied.linear_parameters == shape.linear_parameters
    assert tied.parameters == shape.parameters - 128256 * 4096


def test_an_unknown_architecture_with_the_dimensions_of_llama_is_taken_for_one_and_says_so() -> None:
    shape = shape_from_config(LLAMA | {"model_type": "llama7"})
    assert not shape.exact
    assert shape.parameters == shape_from_config(LLAMA).parameters


def test_gemma_without_a_head_dim_has_that_of_its_family() -> None:
    assert shape_from_config(LLAMA | {"model_type": "gemma"}).head_dim == 256


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "resnet", "hidden_size": 768}, "cannot tell the shape of a model of type 'resnet'"),
        ({}, "model_type is absent"),
        ({k: v for k, v in LLAMA.items() if k != "vocab_size"}, "has no vocab_size"),
        (LLAMA | {"num_attention_heads": 33}, "does not divide into 33 attention heads"),
        (LLAMA | {"num_key_value_heads": 5}, "do not divide into 5 key-value heads"),
        (LLAMA | {"hidden_size": "wide"}, "hidden_size in the model's config.json is 'wide'"),
    ],
)
def test_a_config_that_is_no_language_model_is_refused(config: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        shape_from_config(config)


def test_a_model_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert shape_from_folder(tmp_path) == shape_from_config(LLAMA)


@pytest.mark.parametrize("content", [None, "{", "[]"])
def test_a_folder_that_is_no_model_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(BadInput, match="save_pretrained"):
        shape_from_folder(tmp_path)


def test_lora_trains_rank_times_inputs_and_outputs() -> None:
    shape = shape_from_config(LLAMA)
    method = Method.model_validate({"lora": {"rank": 8, "targets": ["q_proj", "v_proj"]}})
    assert trainable_parameters(shape, method) == 32 * 8 * (4096 + 4096 + 4096 + 1024)


@pytest.mark.parametrize(
    ("config", "targets", "words"),
    [(LLAMA, ["q_prj"], "no module 'q_prj'.*\n.*q_proj"), (MIXTRAL, ["w1"], "only a part of gate_up_proj.*\n.*add w3")],
)
def test_lora_targets_that_the_model_does_not_have_are_refused(config: dict[str, Any], targets: list[str], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        trainable_parameters(shape_from_config(config), Method.model_validate({"lora": {"targets": targets}}))


@pytest.mark.parametrize("name", known_models())
def test_a_known_model_has_the_parameters_that_its_page_shows(name: str) -> None:
    shape = shape_from_config(known_config(name) or {})
    assert shape.exact
    assert shape.parameters == published_parameters(name)


def test_names_of_known_models_are_distinct_and_count_in_any_case() -> None:
    names = known_models()
    assert len({name.lower() for name in names}) == len(names) >= 200
    assert known_config("QWEN/qwen2.5-0.5b") == known_config("Qwen/Qwen2.5-0.5B")
    assert known_config("Qwen/Qwen2.5-0.5B-of-somebody") is None


def test_a_window_that_is_null_is_none_and_one_that_is_absent_is_the_familys() -> None:
    """Mistral 7B from v0.2 on says `"sliding_window": null`, and attends to everything."""
    mistral = LLAMA | {"model_type": "mistral"}
    assert shape_from_config(mistral).sliding_window == 4096
    assert shape_from_config(mistral | {"sliding_window": None}).sliding_window is None
