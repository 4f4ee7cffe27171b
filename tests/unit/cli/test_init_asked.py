"""Held-out prompts are asked as rows are trained: the benchmark of the settings of `init` measures them, and no form of prompts."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.defaults_data import DataSet, data_sets
from benchmarks.defaults_model import TEMPLATE
from tests.builders.models import tiny_config, write_tokenizer

from tuneyard.api import load_jobspec
from tuneyard.cli import main
from tuneyard.data import prepare, set_prompt_form
from tuneyard.scoring.prompts import PromptEncoder


@pytest.mark.parametrize("kind", data_sets(), ids=lambda kind: kind.name)
def test_a_held_out_prompt_and_its_answer_are_the_tokens_of_a_trained_row(
    kind: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tokenizer = write_tokenizer(tmp_path / "model", chat_template=TEMPLATE)
    tiny_config(max_position_embeddings=4096).save_pretrained(tmp_path / "model")
    kind.write(tmp_path)
    assert main(["init", "--data", kind.file, "--model", "model"]) == 0
    train = load_jobspec(tmp_path / "job.yaml").spec.tasks[0].train
    assert train is not None
    (tmp_path / kind.file).write_bytes(kind.held)
    held = train.data.model_copy(update={"validation_fraction": 0.0, "shuffle": False, "max_length": 2048})
    prepared = prepare(held, tokenizer, objective=train.objective, seed=0, cache_dir=tmp_path / "cache")
    set_prompt_form(tokenizer, chats=prepared.chats, template=prepared.prompt_template)
    encoder = PromptEncoder(tokenizer, chat=None, max_length=4096, templated=False)
    rows = [prepared.train[prepared.order.at(place)] for place in range(len(kind.asked))]
    for row, asked in zip(rows, kind.asked, strict=True):
        prompt = encoder.prompt(asked.prompt, tools=list(asked.tools) or None)
        answer = tokenizer(f"{asked.answer}{tokenizer.eos_token}", add_special_tokens=False).input_ids
        whole = len(prompt) + len(answer)
        assert list(row["input_ids"][:whole]) == prompt + answer
        assert list(row["labels"][len(prompt) : whole]) == answer
