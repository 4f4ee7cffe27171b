"""Samples that are longer than a model has positions, or than a window or chunk of its attention."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.builders.models import cpu_plan, train_request, train_task, write_model, write_tokenizer
from tests.integration.training.conftest import Material
from tests.ranks.groups import results_in_ranks
from tests.zoo.configs import tiny_config_of
from transformers import AutoModelForCausalLM

from tuneyard.api import BadInput
from tuneyard.tracking.events import Warned
from tuneyard.training import TrainResult, train


def rows(path: Path, words: int) -> Path:
    path.write_text("".join(json.dumps({"text": "cat " * words}) + "\n" for _ in range(16)))
    return path


def trained(folder: Path, model: Path, source: Path, *, zero: int = 0, told: list[Any] | None = None, **data: Any) -> TrainResult:
    task = train_task(model, source, data={"source": str(source), **data}, steps=1)
    return train(train_request(folder, task, cpu_plan(zero=zero)), emit=[].append if told is None else told.append)


def saved(folder: Path, kind: str, **changes: Any) -> Path:
    config = tiny_config_of(kind)
    config.update(changes)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


@pytest.mark.parametrize(("kind", "zero"), [("gpt2", 0), ("gpt2", 3), ("opt", 0)])
def test_samples_beyond_a_table_of_positions_are_refused(kind: str, zero: int, tmp_path: Path) -> None:
    """In words, and before the first step: an index beyond a table ends the process of a GPU."""
    model = saved(tmp_path / "model", kind)

    with pytest.raises(BadInput, match=rf"samples have up to 301 tokens, and this {kind} model has positions for 256"):
        trained(tmp_path, model, rows(tmp_path / "long.jsonl", 299), zero=zero, maxLength=2048)


def test_short_samples_train_whatever_the_longest_allowed_is(material: Material, tmp_path: Path) -> None:
    """Positions count within a sample, in packed rows too. The default of maxLength is beyond the table of GPT-2."""
    model = write_model(tmp_path / "model", "gpt2")
    for pack in (False, True):
        assert trained(tmp_path / str(pack), model, material.text, pack=pack, maxLength=2048).steps == 1


def test_samples_beyond_the_rows_of_pretraining_are_warned_of(material: Material, tmp_path: Path) -> None:
    told: list[Any] = []

    trained(tmp_path, material.model, rows(tmp_path / "long.jsonl", 299), told=told, maxLength=512)

    (words,) = [event.message for event in told if isinstance(event, Warned)]
    assert words.startswith("samples have up to 301 tokens, and the model was trained on rows of 256")


def test_packed_rows_beyond_a_chunk_of_attention_are_refused(material: Material, tmp_path: Path) -> None:
    """transformers counts chunks from the start of a row, and a sample that crosses one loses what it has seen."""
    model = saved(tmp_path / "model", "llama4_text", attention_chunk_size=32)

    with pytest.raises(BadInput, match="packed samples would not see all of themselves: beyond 32 tokens of a row"):
        trained(tmp_path / "packed", model, material.text, pack=True, maxLength=64)

    assert trained(tmp_path / "short", model, material.text, pack=True, maxLength=32).steps == 1
    assert trained(tmp_path / "alone", model, material.text, maxLength=64).steps == 1


@pytest.mark.parametrize("kind", ["mistral", "gemma3_text"])
def test_windows_count_within_packed_samples(kind: str, material: Material, tmp_path: Path) -> None:
    assert trained(tmp_path, saved(tmp_path / "model", kind), material.text, pack=True, maxLength=64).steps == 1


def test_ranks_drop_activations_of_their_own(tmp_path: Path) -> None:
    """With equal rows, a second rank that drops what the first one drops would add nothing."""
    model = write_model(tmp_path / "model", "gpt2", resid_pdrop=0.5)
    text, one_row = rows(tmp_path / "text.jsonl", 20), {"micro_batch": 1, "grad_accum": 1}

    task = train_task(model, text, steps=1, batch={"global": 1})
    alone = train(train_request(tmp_path / "one", task, cpu_plan(**one_row)))
    task = train_task(model, text, steps=1, batch={"global": 2})
    (both,) = results_in_ranks([train_request(tmp_path / "two", task, cpu_plan(workers=2, **one_row))], workers=2)

    assert both.losses != pytest.approx(alone.losses, rel=1e-4)
