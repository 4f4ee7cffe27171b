"""Models with vision: their language part is trained on text where transformers has it as a causal model, and that is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.builders.models import cpu_plan, train_request, train_task, write_text, write_tokenizer
from tests.zoo.configs import tiny_config_of
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, set_seed

from tuneyard.api import BadInput
from tuneyard.tracking import Event, Warned
from tuneyard.training import train


def trained(kind: str, tmp_path: Path) -> tuple[str, list[str], Any]:
    """The class that was published, what was warned of, and the result."""
    set_seed(7)
    whole = AutoModelForImageTextToText.from_config(tiny_config_of(kind))
    whole.save_pretrained(tmp_path / "model")
    write_tokenizer(tmp_path / "model")
    task = train_task(tmp_path / "model", write_text(tmp_path / "text.jsonl"), steps=2)
    events: list[Event] = []
    result = train(train_request(tmp_path, task, cpu_plan()), emit=events.append)
    return type(whole).__name__, [event.message for event in events if isinstance(event, Warned)], result


def test_gemma_3_is_trained_on_text_and_saved_as_it_was(tmp_path: Path) -> None:
    published, warned, result = trained("gemma3", tmp_path)

    assert AutoConfig.from_pretrained(result.model_uri).architectures == [published]
    (untrained,) = warned
    assert "no text reaches 50 of the 78 weights to train (model.vision_tower." in untrained
    again, loaded = AutoModelForImageTextToText.from_pretrained(result.model_uri, output_loading_info=True)
    assert loaded["missing_keys"] == set()
    assert type(again).__name__ == published


def test_of_qwen_3_5_the_language_part_is_trained_and_saved_and_that_is_said(tmp_path: Path) -> None:
    published, warned, result = trained("qwen3_5", tmp_path)

    assert warned == [
        f"{tmp_path}/model is a {published}: its language part (Qwen3_5ForCausalLM) is trained and saved, "
        "without the weights for images and sound"
    ]
    _, loaded = AutoModelForCausalLM.from_pretrained(result.model_uri, output_loading_info=True)
    assert loaded["missing_keys"] == set()


def test_a_model_with_vision_that_has_no_causal_class_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"Unrecognized configuration class.*\n.*save its language part as one"):
        trained("qwen2_5_vl", tmp_path)
