"""Tokenizers that do not quite go with their model: trained and saved so that it loads elsewhere, or refused before the first step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.builders.models import (
    cpu_plan,
    sentences,
    tiny_config,
    tokenizer_of,
    train_request,
    train_task,
    write_chats,
    write_preferences,
    write_text,
)
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed

from tuneyard.api import BadInput
from tuneyard.training import train

ROLES = ["<|user|>", "<|assistant|>", "<|system|>"]
TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def tokenizer() -> Any:
    return tokenizer_of(ROLES, eos="<|end|>", chat_template=TEMPLATE)


TOKENS = len(tokenizer())


def model(folder: Path, tokenizer: Any, **changes: Any) -> Path:
    set_seed(7)
    AutoModelForCausalLM.from_config(tiny_config(**{"vocab_size": TOKENS, **changes})).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def trained(folder: Path, base: Path, rows: Path, *, zero: int = 0, **changes: Any) -> Any:
    task = train_task(base, rows, **{"data": {"source": str(rows), "maxLength": 64}, "steps": 2, **changes})
    return train(train_request(folder, task, cpu_plan(zero=zero)))


@pytest.mark.parametrize("tied", [True, False])
def test_added_tokens_get_rows_that_are_trained_and_saved(tied: bool, tmp_path: Path) -> None:
    more = tokenizer()
    more.add_tokens(["<|new|>", "<|newer|>"])
    base = model(tmp_path / "base", more, tie_word_embeddings=tied)
    rows = tmp_path / "a.jsonl"
    rows.write_text('{"text": "the <|new|> cat <|newer|>"}\n' * 16)

    result = trained(tmp_path, base, rows, steps=6)

    loaded, again = AutoModelForCausalLM.from_pretrained(result.model_uri), AutoTokenizer.from_pretrained(result.model_uri)
    assert loaded.config.vocab_size == len(again) == loaded.get_input_embeddings().num_embeddings == TOKENS + 2
    given = again("the <|new|> cat <|newer|>", return_tensors="pt")
    assert given["input_ids"].max() == TOKENS + 1
    assert loaded(**given).logits.shape[-1] == TOKENS + 2
    assert result.losses[-1] < result.losses[0]


def test_added_tokens_without_rows_are_refused_where_the_embedding_is_frozen(tmp_path: Path) -> None:
    more = tokenizer()
    more.add_tokens(["<|new|>"])
    base = model(tmp_path / "base", more)
    with pytest.raises(BadInput, match=r"tokens that the model has no embedding for: <\|new\|>") as refused:
        trained(tmp_path, base, write_text(tmp_path / "a.jsonl"), method={"lora": {"rank": 4}})
    assert "method: full" in refused.value.next_step


@pytest.mark.parametrize("zero", [0, 3])
def test_the_reference_of_pairs_gets_the_same_rows(zero: int, tmp_path: Path) -> None:
    more = tokenizer()
    more.add_tokens(["<|new|>"])
    base = model(tmp_path / "base", more)
    row = {"prompt": "the cat <|new|>", "chosen": " sat <|new|>", "rejected": " ran"}
    rows = tmp_path / "a.jsonl"
    rows.write_text((json.dumps(row) + "\n") * 8)
    result = trained(tmp_path, base, rows, zero=zero, objective="dpo", steps=3)
    assert result.losses[0] == pytest.approx(0.6931472, abs=1e-6)
    assert result.losses[-1] < result.losses[0]


def test_a_tokenizer_of_another_model_is_refused_by_name(tmp_path: Path) -> None:
    base = model(tmp_path / "base", tokenizer(), vocab_size=300)
    with pytest.raises(BadInput, match=rf"base has {TOKENS} tokens and the model 300: it belongs to another model"):
        trained(tmp_path, base, write_text(tmp_path / "a.jsonl"))


def test_an_embedding_with_rows_to_spare_stays_as_it_is(tmp_path: Path) -> None:
    base = model(tmp_path / "base", tokenizer(), vocab_size=512)
    result = trained(tmp_path, base, write_text(tmp_path / "a.jsonl"))
    assert AutoModelForCausalLM.from_pretrained(result.model_uri).config.vocab_size == 512


def test_a_tokenizer_without_end_and_padding_trains_and_pairs_of_texts_are_refused(tmp_path: Path) -> None:
    endless = tokenizer()
    endless.eos_token = endless.pad_token = None
    base = model(tmp_path / "base", endless, eos_token_id=None, pad_token_id=None)
    for rows, objective in ((write_chats(tmp_path / "chats.jsonl"), "sft"), (write_text(tmp_path / "text.jsonl"), "clm")):
        assert trained(tmp_path / objective, base, rows, objective=objective).steps == 2
    with pytest.raises(BadInput, match="the tokenizer has no end token"):
        trained(tmp_path, base, write_preferences(tmp_path / "pairs.jsonl"), objective="dpo")


def test_an_end_that_is_the_padding_and_the_beginning_too_is_learned(tmp_path: Path) -> None:
    """GPT-2's: padding never counts, and the end does."""
    one = tokenizer()
    one.pad_token = one.bos_token = "<|end|>"
    base = model(tmp_path / "base", one)
    rows = tmp_path / "pairs.jsonl"
    rows.write_text("".join(f'{{"prompt": "{text} ", "completion": "cat"}}\n' for text in sentences(16)))

    result = trained(tmp_path, base, rows, objective="sft")

    assert result.details["data"]["loss_tokens"] == 16 * 2, "cat and the end, of rows of many lengths"
    assert result.steps == 2
