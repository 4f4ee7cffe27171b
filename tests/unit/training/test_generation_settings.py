"""Which tokens a saved model's generation_config.json names as ends of an answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.builders.models import tokenizer_of
from transformers import GenerationConfig

from tuneyard.training.generation_settings import write_end_tokens

MARK = 2


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tokenizer_of(["<|im_end|>"], eos="<|endoftext|>", chat_template=None)


@pytest.mark.parametrize(
    ("there", "turn_end", "expected"),
    [
        pytest.param(None, None, 0, id="no file, no chats"),
        pytest.param(None, MARK, [MARK, 0], id="no file"),
        pytest.param(0, MARK, [MARK, 0], id="the tokenizer's alone"),
        pytest.param(7, MARK, [MARK, 7, 0], id="another one of the model's"),
        pytest.param([0, MARK, 7], MARK, [MARK, 0, 7], id="it is there already"),
        pytest.param(0, 0, 0, id="the end token ends turns"),
        pytest.param([7, 9], None, [7, 9], id="no chats: what is there stays"),
    ],
)
def test_the_turns_end_comes_first_and_what_was_there_stays(
    there: int | list[int] | None, turn_end: int | None, expected: int | list[int], tokenizer: Any, tmp_path: Path
) -> None:
    if there is not None:
        GenerationConfig(eos_token_id=there, do_sample=True, temperature=0.6).save_pretrained(tmp_path)

    write_end_tokens(tmp_path, tokenizer, turn_end)

    written = json.loads((tmp_path / "generation_config.json").read_text())
    assert written["eos_token_id"] == expected
    assert written.get("temperature") == (None if there is None else 0.6)
    assert GenerationConfig.from_pretrained(tmp_path).eos_token_id == expected
