"""From a file to rows of tokens: which tokens carry loss, what is cut, what is refused, and that it is done once."""

import json
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.builders.models import sentences, write_chats

from tuneyard.api import BadInput
from tuneyard.data import Prepared
from tuneyard.tracking import Stage, Warned

Make = Callable[..., Prepared]
MARKED = (
    "{% for m in messages %}<|{{ m['role'] }}|>{% if m['role'] == 'assistant' %}"
    "{% generation %}{{ m['content'] }}<|end|>{% endgeneration %}{% else %}{{ m['content'] }}<|end|>{% endif %}{% endfor %}"
)
BARE = (
    "{% for m in messages %}{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] }}{% endgeneration %}"
    "{% else %}{{ m['content'] }}{% endif %}{% endfor %}"
)
FORGETFUL = (
    "{% for m in messages %}{% if loop.last or m['role'] == 'user' %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endif %}{% endfor %}"
)


def write_rows(path: Path, *rows: Any) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def chat(*turns: str) -> dict[str, Any]:
    return {"messages": [{"role": "user" if i % 2 == 0 else "assistant", "content": text} for i, text in enumerate(turns)]}


def with_loss(tokenizer: Any, row: dict[str, Any]) -> str:
    return str(tokenizer.decode([label for label in row["labels"] if label != -100]))


# --- which tokens carry loss


@pytest.mark.parametrize("template", [None, MARKED])
def test_only_what_the_assistant_says_carries_loss(tmp_path: Path, make: Make, tokenizer: Any, template: str | None) -> None:
    path = write_rows(tmp_path / "a.jsonl", chat("the cat", "sat on", "a mat", "and saw"))
    row = make(path, chat_template=template).train[0]
    assert (
        tokenizer.decode(row["input_ids"])
        == "<|user|>the cat<|end|><|assistant|>sat on<|end|><|user|>a mat<|end|><|assistant|>and saw<|end|>"
    )
    assert with_loss(tokenizer, row) == "sat on<|end|>and saw<|end|>"
    assert all(label in (-100, token) for label, token in zip(row["labels"], row["input_ids"], strict=True))


def test_only_the_last_turn_where_the_completion_is_asked_for(tmp_path: Path, make: Make, tokenizer: Any) -> None:
    path = write_rows(tmp_path / "a.jsonl", chat("the cat", "sat on", "a mat", "and saw"))
    assert with_loss(tokenizer, make(path, loss_on="completion").train[0]) == "and saw<|end|>"


def test_messages_of_a_prompt_carry_no_loss(tmp_path: Path, make: Make, tokenizer: Any) -> None:
    turns = chat("the cat", "sat on", "a mat", "and saw")["messages"]
    path = write_rows(tmp_path / "a.jsonl", {"prompt": turns[:3], "completion": turns[3:]})
    assert with_loss(tokenizer, make(path).train[0]) == "and saw<|end|>"


def test_a_completion_carries_loss_with_its_end(tmp_path: Path, make: Make, tokenizer: Any) -> None:
    path = write_rows(tmp_path / "a.jsonl", {"prompt": "the cat ", "completion": "sat on"})
    assert with_loss(tokenizer, make(path).train[0]) == "sat on<|end|>"


@pytest.mark.parametrize("row", [{"prompt": "the c", "completion": "at sat"}, chat("the c", "at sat")])
def test_training_sees_the_tokens_that_an_engine_is_given(tmp_path: Path, make: Make, tokenizer: Any, row: dict[str, Any]) -> None:
    prompt = tokenizer("the c")["input_ids"]
    assert tokenizer("the cat sat")["input_ids"][: len(prompt)] != prompt, "the tokenizer joins across the border"
    made = make(write_rows(tmp_path / "a.jsonl", row), chat_template=BARE).train[0]
    assert made["input_ids"][: len(prompt)] == prompt
    assert with_loss(tokenizer, made).removesuffix("<|end|>") == "at sat"


def test_text_carries_loss_everywhere_but_on_its_first_token(tmp_path: Path, make: Make, tokenizer: Any) -> None:
    row = make(write_rows(tmp_path / "a.jsonl", {"text": "the cat sat"}), objective="clm").train[0]
    assert row["labels"] == [-100, *row["input_ids"][1:]]
    assert tokenizer.decode(row["input_ids"]) == "the cat sat<|end|>"


def test_clm_counts_all_of_a_chat(tmp_path: Path, make: Make) -> None:
    row = make(write_rows(tmp_path / "a.jsonl", chat("the cat", "sat on")), objective="clm").train[0]
    assert row["labels"][1:] == row["input_ids"][1:]


def test_a_tokenizer_without_template_gets_one_and_it_is_said(tmp_path: Path, make: Make, plain_tokenizer: Any) -> None:
    heard: list[Any] = []
    prepared = make(write_chats(tmp_path / "a.jsonl"), tokenizer=plain_tokenizer, emit=heard)
    assert any(isinstance(event, Warned) and "no chat template" in event.message for event in heard)
    assert prepared.chat_template is not None
    assert with_loss(plain_tokenizer, prepared.train[0]).endswith("<|end|>")
    assert plain_tokenizer.chat_template is None, "the caller's tokenizer is left alone"


def test_a_template_that_hides_turns_is_refused_with_a_way_out(tmp_path: Path, make: Make) -> None:
    path = write_rows(tmp_path / "a.jsonl", chat("the cat", "sat on", "a mat", "and saw"))
    with pytest.raises(BadInput, match="renders turns differently") as refused:
        make(path, chat_template=FORGETFUL)
    assert "{% generation %}" in refused.value.next_step
    assert len(make(path, chat_template=FORGETFUL, loss_on="all").train) == 1


# --- rows


def test_packed_rows_keep_samples_apart(tmp_path: Path, make: Make) -> None:
    path = write_chats(tmp_path / "a.jsonl", count=200)
    apart, packed = make(path, max_length=128), make(path, max_length=128, pack=True)
    documents = []
    for row in packed.train:
        assert len(row["input_ids"]) == len(row["labels"]) == len(row["position_ids"]) == row["length"] <= 128
        starts = [i for i, position in enumerate(row["position_ids"]) if position == 0]
        for start, end in zip(starts, [*starts[1:], row["length"]], strict=True):
            assert row["position_ids"][start:end] == list(range(end - start))
            assert row["labels"][start] == -100, "no loss crosses the border between documents"
            documents.append((row["input_ids"][start:end], row["labels"][start:end]))
    assert sorted(documents) == sorted((row["input_ids"], row["labels"]) for row in apart.train)
    assert packed.report.packing_efficiency > 0.95 > apart.report.packing_efficiency
    assert packed.report.tokens == apart.report.tokens == sum(apart.train["length"])


def test_packing_is_as_tight_as_trls(tmp_path: Path, make: Make) -> None:
    from trl import pack_dataset

    path = write_chats(tmp_path / "a.jsonl", count=300)
    theirs = pack_dataset(make(path).train.select_columns(["input_ids"]), 128, "bfd", map_kwargs={"batch_size": 1000})
    assert len(make(path, max_length=128, pack=True).train) <= len(theirs)


def test_long_texts_are_cut_into_pieces_when_packed_and_nothing_is_lost(tmp_path: Path, make: Make, tokenizer: Any) -> None:
    long = " ".join(sentences(40))
    prepared = make(write_rows(tmp_path / "a.jsonl", {"text": long}), objective="clm", pack=True, max_length=32)
    assert sorted(token for row in prepared.train for token in row["input_ids"]) == sorted([*tokenizer(long)["input_ids"], 0])
    assert (prepared.report.truncated, prepared.report.dropped) == (0, 0)


@pytest.mark.parametrize(("overlong", "rows", "truncated", "dropped"), [("truncate", 2, 1, 0), ("drop", 1, 0, 1)])
def test_samples_longer_than_a_row(tmp_path: Path, make: Make, overlong: str, rows: int, truncated: int, dropped: int) -> None:
    path = write_rows(tmp_path / "a.jsonl", chat("the cat", "sat on"), chat("the cat", " ".join(sentences(10))))
    prepared = make(path, overlong=overlong, max_length=32)
    assert (len(prepared.train), prepared.report.truncated, prepared.report.dropped) == (rows, truncated, dropped)
    assert max(prepared.train["length"]) <= 32


def test_samples_longer_than_a_row_may_be_an_error(tmp_path: Path, make: Make) -> None:
    path = write_rows(tmp_path / "a.jsonl", chat("the cat", "sat on"), chat("the cat", " ".join(sentences(10))))
    with pytest.raises(BadInput, match=r"a.jsonl:2: \d+ tokens, more than maxLength 32"):
        make(path, overlong="error", max_length=32)


def test_a_sample_whose_answer_is_cut_off_is_dropped_and_counted(tmp_path: Path, make: Make) -> None:
    path = write_rows(tmp_path / "a.jsonl", chat("the cat", "sat on"), chat(" ".join(sentences(10)), "sat on"))
    report = make(path, max_length=32).report
    assert (report.rows, report.truncated, report.dropped) == (1, 1, 1)
    assert "a.jsonl:2: no token left that carries loss" in report.dropped_examples[0]


# --- validation


def test_validation_is_a_share_without_duplicates_across_the_border(tmp_path: Path, make: Make) -> None:
    lines = write_chats(tmp_path / "once.jsonl", count=200).read_text().splitlines()
    path = tmp_path / "twice.jsonl"
    path.write_text("\n".join(lines + lines[::-1]))
    prepared = make(path, validation_fraction=0.2)
    train, aside = ({tuple(row["input_ids"]) for row in part} for part in (prepared.train, prepared.validation))
    assert not train & aside
    assert 0.1 < len(prepared.validation) / 400 < 0.3
    assert prepared.report.validation_rows == len(prepared.validation)


def test_validation_may_be_a_set_of_its_own(tmp_path: Path, make: Make) -> None:
    other = write_rows(tmp_path / "b.jsonl", chat("the cat", "sat on"))
    prepared = make(write_chats(tmp_path / "a.jsonl"), validation={"source": str(other)})
    assert (len(prepared.train), len(prepared.validation)) == (64, 1)


# --- bad input


def test_some_bad_rows_are_left_out_and_said(tmp_path: Path, make: Make) -> None:
    good = write_chats(tmp_path / "a.jsonl", count=99).read_text()
    path = tmp_path / "b.jsonl"
    path.write_text(good + '{"messages": [{"role":\n')
    heard: list[Any] = []
    prepared = make(path, emit=heard)
    assert (prepared.report.samples, prepared.report.bad) == (99, 1)
    assert any(
        isinstance(event, Warned) and "1 bad row is left out" in event.message and "b.jsonl:100: not JSON" in event.message
        for event in heard
    )


def test_too_many_bad_rows_are_refused_with_the_first_ones(tmp_path: Path, make: Make) -> None:
    path = write_rows(tmp_path / "a.jsonl", chat("the cat", "sat on"), "{", chat("alone"), '{"messages": 3}')
    with pytest.raises(BadInput) as refused:
        make(path)
    message = str(refused.value)
    assert "3 of 4 rows are bad (75.0%; 1.0% are tolerated)" in message
    for reason in ("a.jsonl:2: not JSON", "a.jsonl:3: no assistant turn: nothing to learn from", "a.jsonl:4: messages is int, not a list"):
        assert reason in message
    assert make(path, max_bad_fraction=0.75).report.bad == 3


@pytest.mark.parametrize(
    ("row", "settings", "message"),
    [
        ({"prompt": "a", "chosen": "b", "rejected": "c"}, {}, "preference data .* needs objective dpo, not sft"),
        (chat("a", "b"), {"objective": "dpo"}, "not of format preference"),
        ({"text": "the cat"}, {"loss_on": "assistant"}, "lossOn: assistant needs chats"),
        (chat("a", "b"), {"format": "text"}, "not of format text; columns found: messages"),
        (chat("a", "b"), {"chat_template": "/no/such/file"}, "chatTemplate: /no/such/file: No such file"),
        (chat("a"), {}, "1 of 1 rows are bad .*none is usable"),
    ],
)
def test_unusable_data_is_refused(tmp_path: Path, make: Make, row: dict[str, Any], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        make(write_rows(tmp_path / "a.jsonl", row), **settings)


def test_a_template_that_refuses_a_chat_makes_it_a_bad_row(tmp_path: Path, make: Make) -> None:
    template = "{% if messages[0]['role'] != 'user' %}{{ raise_exception('must start with user') }}{% endif %}" + MARKED
    rows = [chat("the cat", "sat on"), {"messages": [{"role": "system", "content": "x"}, *chat("a", "b")["messages"]]}]
    report = make(write_rows(tmp_path / "a.jsonl", *rows), chat_template=template, max_bad_fraction=0.5).report
    assert (report.samples, report.bad) == (1, 1)
    assert "the chat template refuses it: must start with user" in report.bad_examples[0]
    with pytest.raises(BadInput, match=r"next: give a chat template that takes such chats \(data\.chatTemplate\)"):
        make(write_rows(tmp_path / "b.jsonl", rows[1]), chat_template=template)


# --- once


def test_the_second_time_comes_from_the_cache(tmp_path: Path, make: Make) -> None:
    path = write_chats(tmp_path / "a.jsonl")
    heard: list[Any] = []
    first, second = make(path, pack=True), make(path, pack=True, emit=heard)
    assert (first.cached, second.cached) == (False, True)
    assert first.train[:] == second.train[:]
    assert not [event for event in heard if isinstance(event, Stage)]


@pytest.mark.parametrize("change", [{"max_length": 64}, {"pack": True}, {"chat_template": MARKED}, {"limit": 5}, {"objective": "clm"}])
def test_other_settings_are_another_entry(tmp_path: Path, make: Make, change: dict[str, Any]) -> None:
    path = write_chats(tmp_path / "a.jsonl")
    make(path)
    assert not make(path, **change).cached


def test_changed_content_is_another_entry_and_a_moved_file_is_not(tmp_path: Path, make: Make) -> None:
    path = write_chats(tmp_path / "a.jsonl")
    make(path)
    assert make(path.rename(tmp_path / "b.jsonl")).cached
    write_chats(tmp_path / "b.jsonl", count=65)
    assert not make(tmp_path / "b.jsonl").cached


def test_a_damaged_entry_is_made_again(tmp_path: Path, make: Make) -> None:
    path = write_chats(tmp_path / "a.jsonl")
    expected = make(path).train[:]
    (rows,) = (tmp_path / "cache").rglob("train.arrow")
    rows.write_bytes(rows.read_bytes()[:1000])
    again = make(path)
    assert not again.cached
    assert again.train[:] == expected


def test_several_processes_give_the_same_rows(tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_chats(tmp_path / "a.jsonl", count=700)
    expected = make(path, pack=True).train[:]
    monkeypatch.setattr("tuneyard.data.preparation._SEVERAL_PROCESSES_FROM_BYTES", 0)
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0, 1, 2})
    again = make(write_chats(tmp_path / "a.jsonl", count=701), pack=True, limit=700)
    assert not again.cached
    assert again.train[:] == expected
    assert not multiprocessing.active_children()
