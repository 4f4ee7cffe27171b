"""Tokens and loss of chats and completions are TRL's, under templates of families that people train; each difference has a known class.

`python benchmarks/peer_tokens.py` compares all templates and formats, and axolotl and LLaMA-Factory too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from benchmarks.peer_side_trl import _tokens
from tests.builders.templates import TRL
from tests.peers.classes import CLASSES, EQUAL, Made, class_of
from tests.peers.ours import ours_of, said_in
from tests.peers.rows import CHATS, TEXTS
from transformers import AutoTokenizer

from tuneyard.data import turn_end

OPENING = "they count the opening of an answer"
TEMPLATES = {"llama3": EQUAL, "gemma3": EQUAL, "phi3": EQUAL, "qwen3": OPENING, "cohere": EQUAL, "qwen2_5": "they count what stands"}


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tokenizers")
    for template in TRL:
        if template.name in TEMPLATES:
            template.tokenizer().save_pretrained(folder / template.name)
    return {name: folder / name for name in TEMPLATES}


def found(folder: Path, kind: str, rows: list[dict[str, Any]]) -> str:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    theirs = Made.of(_tokens(str(folder), {"kind": kind, "rows": rows}))
    return class_of(ours_of(tokenizer, rows[0]), theirs, tokenizer, tuple(said_in(rows[0])), turn_end(tokenizer))


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("form", ["chat", "chat, several turns"])
def test_chats(name: str, form: str, tokenizers: dict[str, Path]) -> None:
    assert found(tokenizers[name], "chats", CHATS[form]).startswith(TEMPLATES[name])


@pytest.mark.parametrize("form", ["prompt and completion", "text"])
def test_texts(form: str, tokenizers: dict[str, Path]) -> None:
    assert found(tokenizers["llama3"], "texts", TEXTS[form]) == EQUAL


def test_each_class_says_who_is_right() -> None:
    assert {right for right, _ in CLASSES.values()} == {"ours", "equivalent"}
