"""Samples packed into one row do not see each other."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.builders.models import cpu_plan, tiny_config, train_request, train_task
from tests.integration.training.conftest import Material
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from tuneyard.api import BadInput
from tuneyard.training import train
from tuneyard.training.collate import Collator
from tuneyard.training.proofs.sight import refuse_leaks

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


FAMILIES = {
    "llama": {"num_key_value_heads": 2},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 16},
    "gemma2": {"num_key_value_heads": 2, "head_dim": 16},
    "gpt_neox": {},
    "gpt2": {},
    "gptj": {"rotary_dim": 8},
    "opt": {"ffn_dim": 128, "word_embed_proj_dim": 64},
    "bloom": {},
    "mamba": {},
}
LEAK = {"bloom", "mamba", "opt"}


@pytest.mark.parametrize("kind", FAMILIES)
def test_models_whose_packed_samples_see_each_other_are_found(kind: str) -> None:
    """The truth is each sample alone; the probe must agree with it."""
    size = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 256}
    config = AutoConfig.for_model(kind, **size, max_position_embeddings=64, **FAMILIES[kind])
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    model.config.use_cache = False
    batch = Collator(pad_token_id=1)([packed_row(SAMPLES)])
    with torch.no_grad():
        together = model(input_ids=batch["input_ids"], position_ids=batch["position_ids"]).logits[0]
        alone = torch.cat([model(torch.tensor([sample])).logits[0] for sample in SAMPLES])

    def logits_of(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        with torch.no_grad():
            found: torch.Tensor = model(**inputs).logits
        return found

    assert (kind in LEAK) == (not torch.allclose(together, alone, atol=1e-4))
    if kind in LEAK:
        with pytest.raises(BadInput, match="packed samples would see each other"):
            refuse_leaks(logits_of, Collator(pad_token_id=1), config.vocab_size)
    else:
        refuse_leaks(logits_of, Collator(pad_token_id=1), config.vocab_size)


def test_a_leak_behind_large_logits_is_found() -> None:
    """Trained models have logits of 20 and more; what leaks changes them by little."""
    config = AutoConfig.for_model(
        "xglm", d_model=64, num_layers=2, attention_heads=4, ffn_dim=128, vocab_size=384, max_position_embeddings=64, pad_token_id=1
    )
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()

    def logits_of(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        with torch.no_grad():
            found: torch.Tensor = model(**inputs, use_cache=False).logits
        return found + torch.nn.functional.one_hot(torch.tensor(5), 384) * 50.0

    with pytest.raises(BadInput, match="packed samples would see each other"):
        refuse_leaks(logits_of, Collator(pad_token_id=1), 384)


def test_packing_is_refused_before_the_first_step_where_it_leaks(material: Material, tmp_path: Path) -> None:
    config = AutoConfig.for_model(
        "opt", hidden_size=64, num_hidden_layers=2, num_attention_heads=4, ffn_dim=128, word_embed_proj_dim=64, vocab_size=4096
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "opt")
    AutoTokenizer.from_pretrained(material.model).save_pretrained(tmp_path / "opt")
    data = {"source": str(material.chats), "maxLength": 128, "pack": True}
    task = train_task(tmp_path / "opt", material.chats, objective="sft", data=data, steps=2)

    with pytest.raises(BadInput, match="packed samples would see each other"):
        train(train_request(tmp_path / "out", task, cpu_plan()))


def test_no_token_is_predicted_from_the_sample_before_it() -> None:
    batch = Collator(pad_token_id=1)([packed_row(SAMPLES)])

    starts = batch["position_ids"] == 0
    assert (batch["labels"][starts] == -100).all()
    assert (batch["labels"][~starts] != -100).all()


def test_attention_is_accounted_for_by_sample() -> None:
    batch = Collator(pad_token_id=1)([packed_row(SAMPLES)])

    assert sum(batch["tokens"]) == 16
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
