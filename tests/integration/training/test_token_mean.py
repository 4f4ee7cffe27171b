"""The loss is a mean over the tokens of the global batch, for each architecture and each split into micro-batches."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.builders.models import cpu_plan, train_request, train_task, write_chats, write_tokenizer
from tests.zoo.configs import tiny_config_of
from tests.zoo.proofs import proven_once
from transformers import AutoModelForCausalLM, set_seed

from tuneyard.training import train


@pytest.mark.parametrize("kind", ["llama", "gemma4"])
@proven_once
def test_the_split_of_a_batch_changes_nothing(kind: str, tmp_path: Path) -> None:
    """Rows of 5 to 24 words: Gemma 4's own loss would weigh a short row's tokens more."""
    set_seed(7)
    AutoModelForCausalLM.from_config(tiny_config_of(kind)).save_pretrained(tmp_path / "model")
    write_tokenizer(tmp_path / "model")
    rows = write_chats(tmp_path / "chats.jsonl")

    def losses(micro: int) -> list[float]:
        task = train_task(tmp_path / "model", rows, objective="sft", steps=3)
        plan = cpu_plan(micro_batch=micro, grad_accum=8 // micro)
        return train(train_request(tmp_path / str(micro), task, plan)).losses

    assert losses(1) == pytest.approx(losses(8), abs=2e-5)
