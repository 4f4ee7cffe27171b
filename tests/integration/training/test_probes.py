"""What a model is asked, and what a folder of weights is looked at for, before the first step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.builders.models import cpu_plan, tiny_config, train_request, train_task, write_model, write_text
from transformers import AutoModelForCausalLM, BertConfig, BertLMHeadModel, LlamaModel

from tuneyard.api import BadInput
from tuneyard.training import train
from tuneyard.training.proofs.sight import refuse_foresight


def logits_of(model: Any) -> Any:
    def of(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        with torch.no_grad():
            found: torch.Tensor = model.eval()(**inputs).logits
        return found

    return of


@pytest.mark.parametrize("kind", ["llama", "gpt2", "qwen2", "mixtral"])
def test_decoders_see_nothing_ahead(kind: str) -> None:
    refuse_foresight(logits_of(AutoModelForCausalLM.from_config(tiny_config(kind))), 384)


@pytest.mark.parametrize("is_decoder", [False, True])
def test_an_encoder_sees_what_it_has_to_predict(is_decoder: bool) -> None:
    size = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 384}
    bert = BertLMHeadModel(BertConfig(**size, is_decoder=is_decoder))
    if is_decoder:
        refuse_foresight(logits_of(bert), 384)
    else:
        with pytest.raises(BadInput, match="each token sees the tokens after it"):
            refuse_foresight(logits_of(bert), 384)


def test_a_decoder_that_looks_ahead_is_refused_before_the_first_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of an architecture that no list knows: its forward pass mixes in what comes after."""
    from transformers import LlamaForCausalLM

    def looking_ahead(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = forward(self, *args, **kwargs)
        made.logits = made.logits + made.logits.mean(dim=1, keepdim=True)
        return made

    forward = LlamaForCausalLM.forward
    monkeypatch.setattr(LlamaForCausalLM, "forward", looking_ahead)
    task = train_task(write_model(tmp_path / "model"), write_text(tmp_path / "text.jsonl"))
    with pytest.raises(BadInput, match="each token sees the tokens after it"):
        train(train_request(tmp_path, task, cpu_plan()))


def test_a_decoder_that_looks_ahead_in_long_rows_alone_is_refused_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row that is tested is as long as the longest sample."""
    from transformers import LlamaForCausalLM

    def looking_ahead(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = forward(self, *args, **kwargs)
        if kwargs["input_ids"].shape[1] > 20:
            made.logits = made.logits + made.logits[:, -1:]
        return made

    forward = LlamaForCausalLM.forward
    monkeypatch.setattr(LlamaForCausalLM, "forward", looking_ahead)
    task = train_task(write_model(tmp_path / "model"), write_text(tmp_path / "text.jsonl"))
    with pytest.raises(BadInput, match="each token sees the tokens after it"):
        train(train_request(tmp_path, task, cpu_plan()))


def test_weights_that_a_folder_lacks_are_not_made_up(tmp_path: Path) -> None:
    write_model(tmp_path / "model")
    LlamaModel.from_pretrained(tmp_path / "model").save_pretrained(tmp_path / "model")
    task = train_task(tmp_path / "model", write_text(tmp_path / "text.jsonl"))

    with pytest.raises(
        BadInput, match=r"lacks 1 weights of a language model, which would start at random: lm_head.weight\n.*AutoModelForCausalLM"
    ):
        train(train_request(tmp_path, task, cpu_plan()))
