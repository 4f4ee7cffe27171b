"""Preference pairs become rows of two samples: what carries loss, what is cut, what is refused, and that streams have the same rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trl
from tests.builders.models import sentences

from tuneyard.api import BadInput, TrainData
from tuneyard.data import Prepared, prepare
from tuneyard.data.mapped_rows import by_batches
from tuneyard.data.shown import first_pieces

Make = Callable[..., Prepared]
USER = {"role": "user", "content": "Will it rain?"}
TOOL = {"name": "weather", "description": "The weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
CALL = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Rome"}}}
WITH_REASONING = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"


def write_rows(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def many(path: Path, count: int = 40) -> Path:
    texts = sentences(3 * count)
    return write_rows(path, *({"prompt": texts[i], "chosen": " " + texts[i + 1], "rejected": " no"} for i in range(0, 3 * count, 3)))


def said(role: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def samples_of(tokenizer: Any, row: Any) -> list[tuple[str, str]]:
    """(all tokens, tokens with loss) of each sample of a row, as text."""
    starts = [*np.flatnonzero(np.asarray(row["position_ids"]) == 0).tolist(), len(row["input_ids"])]
    return [
        (tokenizer.decode(row["input_ids"][a:b]), tokenizer.decode([label for label in row["labels"][a:b] if label != -100]))
        for a, b in pairwise(starts)
    ]


def test_a_pair_of_texts_is_a_row_of_two_samples(make: Make, tokenizer: Any, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl", {"prompt": "the cat sat", "chosen": " on a mat", "rejected": " on two hills"})
    prepared = make(path, objective="dpo")
    row = prepared.train[0]

    assert samples_of(tokenizer, row) == [
        ("the cat sat on a mat<|end|>", " on a mat<|end|>"),
        ("the cat sat on two hills<|end|>", " on two hills<|end|>"),
    ]
    report = prepared.report
    assert (report.samples, report.rows, report.tokens) == (1, 1, len(row["input_ids"]))
    assert report.loss_tokens == sum(label != -100 for label in row["labels"])
    assert report.packing_efficiency == pytest.approx(report.tokens / (2 * report.max_length))
    pieces = [(piece.text, piece.loss) for piece in first_pieces(tokenizer, prepared.train, pairs=True)]
    assert [text for text, loss in pieces if loss] == [" on a mat<|end|>", " on two hills<|end|>"]


@pytest.mark.parametrize(
    ("loss_on", "chosen", "rejected"),
    [("auto", ["look it up", "weather", "It will not."], "Yes."), ("completion", ["It will not."], "Yes.")],
)
def test_pairs_have_tools_and_reasoning(loss_on: str, chosen: list[str], rejected: str, make: Make, tokenizer: Any, tmp_path: Path) -> None:
    turns = [
        said("assistant", "", reasoning_content="look it up", tool_calls=[CALL]),
        said("tool", "no rain"),
        said("assistant", "It will not.", reasoning_content="dry"),
    ]
    row = {"prompt": [USER], "chosen": turns, "rejected": [said("assistant", "Yes.", reasoning_content="guess")]}
    path = write_rows(tmp_path / "a.jsonl", {**row, "tools": [{"type": "function", "function": TOOL}]})
    prepared = make(path, objective="dpo", chat_template=str(WITH_REASONING), max_length=1024, loss_on=loss_on)

    (whole, with_loss), (_, other) = samples_of(tokenizer, prepared.train[0])
    assert "# Tools" in whole
    assert all(part in with_loss for part in chosen)
    assert "no rain" in whole
    assert "no rain" not in with_loss, "a tool's answer is not the model's"
    assert ("look it up" in with_loss) is (loss_on == "auto")
    assert rejected in other
    assert prepared.report.tools
    assert prepared.report.reasons


def test_an_answer_that_begins_with_the_assistant_follows_the_prompt(make: Make, tokenizer: Any, tmp_path: Path) -> None:
    """Answers that share their first turn do not replace the prompt; answers that include the prompt do not repeat it."""
    first, last = said("assistant", "once"), [said("assistant", "the cat"), said("assistant", "the dog")]
    apart = {"prompt": [USER], "chosen": [first, USER, last[0]], "rejected": [first, USER, last[1]]}
    whole = {"prompt": USER["content"], "chosen": [USER, first, USER, last[0]], "rejected": [USER, first, USER, last[1]]}
    for row in (apart, whole):
        path = write_rows(tmp_path / "a.jsonl", row)
        (chosen, with_loss), _ = samples_of(tokenizer, make(path, objective="dpo").train[0])
        assert (
            chosen == f"<|user|>{USER['content']}<|end|><|assistant|>once<|end|><|user|>{USER['content']}<|end|><|assistant|>the cat<|end|>"
        )
        assert with_loss == "the cat<|end|>"


@pytest.mark.parametrize(
    ("row", "overlong", "truncated", "dropped"),
    [
        ({"prompt": "the cat sat", "chosen": " on" * 40, "rejected": " a"}, "truncate", 1, ""),
        ({"prompt": "the cat sat", "chosen": " on" * 40, "rejected": " a"}, "drop", 0, "tokens"),
        ({"prompt": "the cat" * 40, "chosen": " on", "rejected": " a"}, "truncate", 1, "no token left that carries loss"),
        (
            {"prompt": "the cat", "chosen": " on" * 40 + " a", "rejected": " on" * 40 + " b"},
            "truncate",
            1,
            "do not differ within maxLength",
        ),
    ],
)
def test_a_pair_that_is_too_long_is_kept_or_left_out_as_a_whole(
    row: dict[str, str], overlong: str, truncated: int, dropped: str, make: Make, tokenizer: Any, tmp_path: Path
) -> None:
    good = {"prompt": "the cat sat", "chosen": " on a mat", "rejected": " on two hills"}
    prepared = make(write_rows(tmp_path / "a.jsonl", good, row), objective="dpo", max_length=16, overlong=overlong)

    assert prepared.report.truncated == truncated
    assert prepared.report.dropped == (1 if dropped else 0)
    assert all("a.jsonl:2: " in line and dropped in line for line in prepared.report.dropped_examples)
    assert prepared.report.rows == (1 if dropped else 2)
    for number in range(prepared.report.rows):
        chosen, rejected = samples_of(tokenizer, prepared.train[number])
        assert chosen[1] != rejected[1]
        assert chosen[1]
        assert rejected[1]


def test_pairs_that_are_too_long_are_refused_where_the_task_asks_for_it(make: Make, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl", {"prompt": "the cat" * 40, "chosen": " on", "rejected": " a"})
    with pytest.raises(BadInput, match=r"a\.jsonl:1: \d+ tokens, more than maxLength 16"):
        make(path, objective="dpo", max_length=16, overlong="error")
    with pytest.raises(BadInput, match=r"no sample is left to train on: 1 were dropped, such as .*no token left that carries loss"):
        make(path, objective="dpo", max_length=16)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"prompt": "a", "chosen": "b", "rejected": "b"}, "chosen and rejected are the same"),
        ({"prompt": "a", "chosen": "b", "rejected": ""}, "rejected is empty"),
        ({"prompt": "a", "chosen": "b"}, "no column rejected; columns of this row: prompt, chosen"),
        ({"prompt": "a", "chosen": "b", "rejected": None}, "rejected is missing"),
        ({"prompt": "", "chosen": "the ", "rejected": "the cat"}, "chosen adds nothing to the prompt"),
        ({"prompt": "a", "chosen": [said("assistant", "b")], "rejected": [said("assistant", "c")]}, "chosen holds messages, but text in"),
        ({"prompt": "a", "chosen": "b", "rejected": [said("assistant", "c")]}, "rejected is list, not text"),
    ],
)
def test_what_is_no_pair_is_a_bad_row(row: dict[str, Any], reason: str, make: Make, tmp_path: Path) -> None:
    path = many(tmp_path / "a.jsonl", 100)
    path.write_text(path.read_text() + json.dumps(row) + "\n")
    prepared = make(path, objective="dpo", max_bad_fraction=0.5)
    assert prepared.report.bad == 1
    assert reason in prepared.report.bad_examples[0]
    with pytest.raises(BadInput, match="1 of 101 rows are bad"):
        make(path, objective="dpo", max_bad_fraction=0)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"prompt": "a", "chosen": "b", "rejected": "c"}, "chosen holds text, but messages in the first rows"),
        ({"prompt": [USER], "chosen": [said("user", "b")], "rejected": [said("assistant", "c")]}, "chosen has no turn of the assistant"),
        ({"prompt": [USER], "chosen": [said("assistant", "b", weight=0)], "rejected": [said("assistant", "c")]}, "chosen has no turn"),
        ({"chosen": [USER, said("assistant", "b")], "rejected": [USER]}, "rejected adds nothing to the prompt"),
        ({"chosen": [said("assistant", "b")], "rejected": [said("assistant", "c")]}, "share no first message, and there is no prompt"),
        ({"prompt": [USER], "chosen": [said("assistant", "")], "rejected": [said("assistant", "c")]}, "the assistant says nothing"),
    ],
)
def test_what_is_no_pair_of_messages_is_a_bad_row(row: dict[str, Any], reason: str, make: Make, tmp_path: Path) -> None:
    good = {"prompt": [USER], "chosen": [said("assistant", "b")], "rejected": [said("assistant", "c")]}
    prepared = make(write_rows(tmp_path / "a.jsonl", *[good] * 9, row), objective="dpo", max_bad_fraction=0.5)
    assert prepared.report.bad == 1
    assert reason in prepared.report.bad_examples[0]


def test_an_empty_prompt_is_none(make: Make, tokenizer: Any, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl", {"prompt": "", "chosen": "the cat sat", "rejected": "one dog"})
    row = make(path, objective="dpo").train[0]
    assert [whole for whole, _ in samples_of(tokenizer, row)] == ["the cat sat<|end|>", "one dog<|end|>"]
    assert row["labels"][0] == -100, "no token comes before the first one"


def test_a_bad_sample_takes_its_pair_along(make: Make, tmp_path: Path) -> None:
    """The template refuses one of the two answers."""
    template = (
        "{% for m in messages %}{% if m['content'] == 'no' %}{{ raise_exception('never') }}{% endif %}"
        "<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    )
    good = {"prompt": [USER], "chosen": [said("assistant", "b")], "rejected": [said("assistant", "c")]}
    bad = [{**good, "rejected": [said("assistant", "no")]}, {**good, "prompt": [said("user", "no")]}]
    path = write_rows(tmp_path / "a.jsonl", *[good] * 8, *bad)
    prepared = make(path, objective="dpo", chat_template=template, max_bad_fraction=0.5)
    assert (prepared.report.samples, prepared.report.bad, prepared.report.rows) == (8, 2, 8)


def test_tools_of_texts_are_refused_where_they_are_named(make: Make, tmp_path: Path) -> None:
    row = {"prompt": "a", "chosen": "b", "rejected": "c", "functions": [TOOL]}
    with pytest.raises(BadInput, match=r"data\.columns: tools: only a chat template renders it; these pairs are texts"):
        make(write_rows(tmp_path / "a.jsonl", row), objective="dpo", columns={"tools": "functions"})


@pytest.mark.parametrize("pack", [False, True])
def test_streamed_and_prepared_pairs_are_the_same_rows_in_the_same_order(pack: bool, make: Make, tokenizer: Any, tmp_path: Path) -> None:
    path = many(tmp_path / "a.jsonl")
    spec: dict[str, Any] = {"objective": "dpo", "max_length": 40, "pack": pack, "validation_fraction": 0.2}
    prepared, streamed = make(path, **spec), make(path, streaming=True, workers=0, **spec)
    assert streamed.report.streamed
    order = prepared.order.at_each(np.arange(prepared.order.epoch_rows)).tolist()
    whole, rows = by_batches(prepared.train), streamed.train
    for position, number in enumerate(order):
        here, there = whole[number], rows[streamed.order.at(position)]
        assert all(np.array_equal(here[name], there[name]) for name in ("input_ids", "labels", "position_ids"))

    every = [samples_of(tokenizer, whole[number]) for number in order]
    assert all(len(samples) % 2 == 0 for samples in every)
    for samples in every:
        for (chosen, _), (rejected, with_loss) in zip(samples[::2], samples[1::2], strict=True):
            assert with_loss == " no<|end|>"
            assert chosen.startswith(rejected.removesuffix(with_loss))
    assert (max(map(len, every)) > 2) is pack
    assert max(len(whole[number]["input_ids"]) for number in order) <= 80
    held_out = [samples_of(tokenizer, row) for row in by_batches(prepared.validation)]
    assert held_out == [samples_of(tokenizer, row) for row in streamed.validation]
    assert sum(map(len, every)) + sum(map(len, held_out)) == 2 * prepared.report.samples


def test_a_mixture_may_have_pairs_of_texts_and_pairs_of_messages(tokenizer: Any, tmp_path: Path) -> None:
    messages = {"prompt": [USER], "chosen": [said("assistant", "b")], "rejected": [said("assistant", "c")]}
    mix = [{"source": str(many(tmp_path / "texts.jsonl", 4))}, {"source": str(write_rows(tmp_path / "chats.jsonl", *[messages] * 4))}]
    found = prepare(TrainData.model_validate({"mix": mix}), tokenizer, objective="dpo", seed=0, cache_dir=tmp_path / "cache")
    rows = [samples_of(tokenizer, found.train[number]) for number in range(len(found.train))]
    assert sum(chosen.startswith("<|user|>") for (chosen, _), _ in rows) == 4
    assert len(rows) == 8
