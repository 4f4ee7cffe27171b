"""An adapter whose weights are not those that its configuration names is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tuneyard.api import BadInput
from tuneyard.catalog.adapter_files import check_adapter_files

LAYERS, WIDTH, RANK = 3, 8, 4
Weights = dict[str, torch.Tensor]


def weights(rank: int = RANK, modules: tuple[str, ...] = ("q_proj", "v_proj")) -> Weights:
    found = {}
    for layer in range(LAYERS):
        for module in modules:
            name = f"base_model.model.model.layers.{layer}.self_attn.{module}"
            found[f"{name}.lora_A.weight"] = torch.ones(rank, WIDTH)
            found[f"{name}.lora_B.weight"] = torch.ones(WIDTH, rank)
    return found


def write(folder: Path, tensors: Weights, **config: Any) -> Path:
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    about = {"peft_type": "LORA", "r": RANK, "target_modules": ["q_proj", "v_proj"], **config}
    (folder / "adapter_config.json").write_text(json.dumps({name: value for name, value in about.items() if value != "left out"}))
    return folder


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """The base model, with a layer for predicting several tokens beyond its own."""
    names = [f"model.layers.{layer}.self_attn.{module}.weight" for layer in range(LAYERS + 1) for module in ("q_proj", "k_proj", "v_proj")]
    (tmp_path / "base").mkdir()
    save_file({name: torch.ones(WIDTH, WIDTH) for name in names}, tmp_path / "base" / "model.safetensors")
    (tmp_path / "base" / "config.json").write_text(json.dumps({"num_hidden_layers": LAYERS}))
    return tmp_path / "base"


def test_whole_adapters_pass(base: Path, tmp_path: Path) -> None:
    check_adapter_files(write(tmp_path / "a", weights()), base)
    check_adapter_files(write(tmp_path / "b", weights(), target_modules=r".*\.(q|v)_proj"), base)
    check_adapter_files(write(tmp_path / "c", weights(rank=2), r=8, rank_pattern={"q_proj": 2, r"layers\.\d+\.self_attn\.v_proj": 2}), base)
    few = {name: value for name, value in weights().items() if ".layers.1." in name}
    check_adapter_files(write(tmp_path / "d", few, layers_to_transform=[1]), base)
    check_adapter_files(write(tmp_path / "e", {name: value.to(torch.bfloat16) for name, value in weights().items()}), base)


def without(part: str) -> Callable[[], Weights]:
    return lambda: {name: value for name, value in weights().items() if part not in name}


def with_nan(dtype: torch.dtype) -> Callable[[], Weights]:
    def made() -> Weights:
        found = {name: value.to(dtype) for name, value in weights().items()}
        next(iter(found.values()))[0, 0] = torch.nan
        return found

    return made


@pytest.mark.parametrize(
    ("tensors", "config", "said"),
    [
        (weights, {"target_modules": ["foo_proj"]}, "target_modules does not name; no weights of foo_proj"),
        (weights, {"target_modules": ["q_proj"]}, "v_proj, which target_modules does not name"),
        (weights, {"r": 8}, "says rank 8 for .*, and its weights have rank 4"),
        (weights, {"rank_pattern": {"v_proj": 8}}, "says rank 8 for .*v_proj"),
        (weights, {"r": "four"}, "r is 'four', not a rank"),
        (weights, {"r": "left out"}, "r is None, not a rank"),
        (weights, {"rank_pattern": ["v_proj"]}, "rank_pattern is"),
        (without(".layers.1."), {}, "lacks the weights of 1 of 3 modules, such as model.layers.1.self_attn"),
        (without(".layers.2.self_attn.v_proj"), {}, "lacks the weights of 1 of 3 modules, such as model.layers.2.self_attn.v_proj"),
        (without("layers.0.self_attn.q_proj.lora_B"), {}, "lacks lora_B of model.layers.0.self_attn.q_proj"),
        (with_nan(torch.float32), {}, "NaN or infinity in base_model"),
        (with_nan(torch.bfloat16), {}, "NaN or infinity in base_model"),
        (with_nan(torch.float16), {}, "NaN or infinity in base_model"),
    ],
)
def test_what_does_not_agree_is_refused(
    tensors: Callable[[], Weights], config: dict[str, Any], said: str, base: Path, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=said):
        check_adapter_files(write(tmp_path / "adapter", tensors(), **config), base)


@pytest.mark.parametrize("size", [0, 4, 100, -1])
def test_a_file_that_was_cut_is_refused(size: int, base: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "adapter", weights())
    file = folder / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(BadInput, match="is damaged"):
        check_adapter_files(folder, base)
    file.unlink()
    with pytest.raises(BadInput, match="has no weights"):
        check_adapter_files(folder, base)
