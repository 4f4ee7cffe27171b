"""Samples packed into one row do not see each other."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.integration.training.conftest import Material
from tests.models import cpu_plan, tiny_config, train_request, train_task
from transformers import AutoModelForCausalLM

from tuneyard.training import train
from tuneyard.training.collate import Collator

SAMPLES = [[5, 6, 7, 8, 9], [20, 21, 22], [30, 31, 32, 33, 34, 35], [40, 41]]


def packed_row(samples: list[list[int]]) -> dict[str, list[int]]:
    tokens = [token for sample in samples for token in sample]
    positions = [position for sample in samples for position in range(len(sample))]
    return {"input_ids": tokens, "labels": list(tokens), "position_ids": positions}


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "qwen2"])
def test_each_sample_of_packed_rows_is_answered_as_if_it_were_alone(kind: str, attention: str) -> None:
    model = AutoModelForCausalLM.from_config(tiny_config(kind), attn_implementation=attention).eval()
    model.config.use_cache = False
    batch = Collator(pad_token_id=1)([packed_row(SAMPLES[:2]), packed_row([*SAMPLES[2:], [50, 51, 52, 53]])])

    with torch.no_grad():
        together = model(input_ids=batch["input_ids"], position_ids=batch["position_ids"]).logits
        first_row = [model(torch.tensor([sample])).logits[0] for sample in SAMPLES[:2]]
        second_row = [model(torch.tensor([sample])).logits[0] for sample in [*SAMPLES[2:], [50, 51, 52, 53]]]

    torch.testing.assert_close(together[0, :8], torch.cat(first_row), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(together[1, :12], torch.cat(second_row), rtol=1e-4, atol=1e-5)


def test_no_token_is_predicted_from_the_sample_before_it() -> None:
    batch = Collator(pad_token_id=1)([packed_row(SAMPLES)])

    starts = batch["position_ids"] == 0
    assert (batch["labels"][starts] == -100).all()
    assert (batch["labels"][~starts] != -100).all()


def test_attention_is_accounted_for_by_sample() -> None:
    batch = Collator(pad_token_id=1)([packed_row(SAMPLES)])

    assert batch["tokens"] == 16
    assert batch["squares"] == 25 + 9 + 36 + 4


def test_rows_for_flash_attention_lie_end_to_end() -> None:
    batch = Collator(pad_token_id=1, lay_flat=True)([packed_row(SAMPLES[:2]), packed_row(SAMPLES[2:])])

    assert batch["input_ids"].shape == (1, 16)
    assert (batch["position_ids"] == 0).sum() == 4


def test_packed_training_learns_and_needs_fewer_steps(material: Material, tmp_path: Path) -> None:
    def run(name: str, pack: bool) -> list[float]:
        data = {"source": str(material.chats), "maxLength": 128, "pack": pack}
        task = train_task(material.model, material.chats, objective="sft", data=data, steps=None, epochs=1)
        return train(train_request(tmp_path / name, task, cpu_plan())).losses

    packed, padded = run("packed", True), run("padded", False)

    assert len(packed) < len(padded)
    assert packed[-1] < packed[0]
