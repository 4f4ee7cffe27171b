"""An error of a library in the first passes of a model is told with the class, the dtype, the layout, and the library's words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.builders.models import cpu_plan, train_request, train_task, write_tokenizer
from tests.integration.training.conftest import Material
from tests.zoo.configs import tiny_config_of
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaMLP

from tuneyard.api import BadInput, JobFailed
from tuneyard.training import train


def run(folder: Path, model: Path, material: Material, task: dict[str, Any] | None = None, **plan: Any) -> Any:
    return train(train_request(folder, train_task(model, material.text, steps=1, **(task or {})), cpu_plan(**plan)))


def written(folder: Path, kind: str) -> Path:
    AutoModelForCausalLM.from_config(tiny_config_of(kind)).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def test_a_class_that_does_not_compute_in_16_bits_is_refused(material: Material, tmp_path: Path) -> None:
    refused = r"DbrxForCausalLM does not compute in bf16 without DeepSpeed, with eager attention: RuntimeError: index_add_.*\n.*zero to 1"
    with pytest.raises(BadInput, match=refused):
        run(tmp_path, written(tmp_path / "dbrx", "dbrx"), material, precision="bf16", attention="eager")


def test_a_class_that_does_not_load_under_zero_3_is_refused(material: Material, tmp_path: Path) -> None:
    refused = r"does not load model\.norm\.weight of .* under ZeRO 3; its files hold it\n.*set strategy\.zero to 2"
    with pytest.raises(BadInput, match=refused):
        run(tmp_path, written(tmp_path / "deepseek", "deepseek_v4"), material, zero=3, attention="eager")


@pytest.mark.parametrize("error", [NotImplementedError, KeyError, ZeroDivisionError])
def test_any_error_of_the_first_passes_is_told(
    error: type[Exception], material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise error("rows of whole chunks")

    monkeypatch.setattr(LlamaMLP, "forward", broken)
    with pytest.raises(
        BadInput, match=rf"LlamaForCausalLM does not compute in fp32 under ZeRO 1.*{error.__name__}: .*rows of whole chunks"
    ):
        run(tmp_path, material.model, material, zero=1)


def test_an_error_of_the_first_step_is_told(material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests before it have passed: only the step has a backward pass."""
    plain = LlamaMLP.forward

    def forward(self: Any, values: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = plain(self, values)
        if made.requires_grad and self.training and len(values) > 1:
            raise TypeError("no backward pass for this kernel")
        return made

    monkeypatch.setattr(LlamaMLP, "forward", forward)
    with pytest.raises(BadInput, match=r"LlamaForCausalLM does not compute in fp32 .*TypeError: no backward pass for this kernel"):
        run(tmp_path, material.model, material)


@pytest.mark.parametrize("words", ["CUDA error: an illegal memory access", "out of memory", "Connection closed by peer", "ncclRemoteError"])
def test_an_error_of_the_machine_is_no_refusal(words: str, material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runtime starts such an attempt again, or with less memory."""

    def broken(*_: Any) -> None:
        raise RuntimeError(words)

    monkeypatch.setattr(LlamaMLP, "forward", broken)
    with pytest.raises((RuntimeError, JobFailed), match="memory" if "memory" in words else words) as failed:
        run(tmp_path, material.model, material)
    assert not isinstance(failed.value, BadInput)
