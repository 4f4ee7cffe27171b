"""What people see of samples: the loss, the end of answers, and nothing that moves the cursor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.builders.models import tokenizer_of, train_task

from tuneyard.api import BadInput
from tuneyard.data import prepare
from tuneyard.data.shown import first_pieces
from tuneyard.data.visible import marked, visible

TEMPLATE = "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endfor %}"


@pytest.mark.parametrize("pack", [True, False])
def test_the_first_sample_as_the_model_sees_it(pack: bool, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(["<|user|>", "<|assistant|>"], eos="<|end|>", chat_template=TEMPLATE)
    turns = [{"role": "user", "content": "the cat"}, {"role": "assistant", "content": "sat on a mat"}]
    source = tmp_path / "chats.jsonl"
    source.write_text((json.dumps({"messages": turns}) + "\n") * 8)
    task = train_task(tmp_path, source, objective="sft", data={"source": str(source), "maxLength": 64, "pack": pack})

    prepared = prepare(task.data, tokenizer, objective="sft", seed=0, cache_dir=tmp_path / "cache")

    pieces = [(piece.text, piece.loss) for piece in first_pieces(tokenizer, prepared.train)]
    assert "".join(text for text, _ in pieces) == "<|user|>the cat<|end|><|assistant|>sat on a mat<|end|>"
    assert [text for text, loss in pieces if loss] == ["<|assistant|>sat on a mat<|end|>"], "found by prefixes: this template opens no turn"
    assert marked(pieces, 1000) == "<|user|>the cat<|end|>«<|assistant|>sat on a mat<|end|>»"
    assert marked(pieces, 38) == "<|user|>the cat<|end|>«<|assistant|>sat» …"


def test_the_first_pair(tmp_path: Path) -> None:
    source = tmp_path / "pairs.jsonl"
    source.write_text((json.dumps({"prompt": "2+2?", "chosen": "4", "rejected": "5"}) + "\n") * 8)
    tokenizer: Any = tokenizer_of([], eos="<|end|>", chat_template=None)
    prepared = prepare(train_task(tmp_path, source).data, tokenizer, objective="dpo", seed=0, cache_dir=tmp_path / "cache")
    pieces = [(piece.text, piece.loss) for piece in first_pieces(tokenizer, prepared.train, pairs=True)]
    assert pieces[:3] == [("chosen:\n", False), ("2+2?", False), ("4<|end|>", True)]
    assert pieces[3:] == [("\nrejected:\n", False), ("2+2?", False), ("5<|end|>", True)]


def test_characters_that_move_the_cursor_or_turn_the_text_are_spelled_out() -> None:
    assert visible("a\x1b[2Jb\rc\u202ed\nx\ty") == "a\\u001b[2Jb\\u000dc\\u202ed\nx\ty"
    assert visible("grüß 日本 👩\u200d💻") == "grüß 日本 👩\u200d💻"


def test_rows_labelled_false_are_not_trained_on_and_said_so(tmp_path: Path) -> None:
    tokenizer: Any = tokenizer_of([], eos="<|end|>", chat_template=None)
    rows = [{"prompt": f"{i}+1? ", "completion": "yes" if i % 2 else "no", "label": bool(i % 2)} for i in range(16)]
    source = tmp_path / "kto.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = train_task(tmp_path, source)

    prepared = prepare(task.data, tokenizer, objective="sft", seed=0, cache_dir=tmp_path / "cache")

    assert len(prepared.train) == 8
    assert not any(" no" in tokenizer.decode(row["input_ids"]) for row in prepared.train)
    assert "8 rows are labelled false" in prepared.report.warnings()[0]
    with pytest.raises(BadInput, match="give no pairs"):
        prepare(task.data, tokenizer, objective="dpo", seed=0, cache_dir=tmp_path / "cache")
    source.write_text("".join(json.dumps(row | {"label": False}) + "\n" for row in rows))
    with pytest.raises(BadInput, match="all 16 rows are labelled"):
        prepare(task.data, tokenizer, objective="sft", seed=0, cache_dir=tmp_path / "cache")
