"""The quickstart's data: answers that stand in the mails, and held-out guests who are in nothing else."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.data.bookings import bookings, build, held_out


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("corpus")
    assert build(out) == {"train": 4_000, "heldout": 64, "texts": 4_000}
    return out


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@given(st.integers(0, 2**32))
def test_an_answer_says_what_the_mail_says(seed: int) -> None:
    words = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}
    hours = {"19:00": "at seven", "19:30": "at half past seven", "20:00": "at eight", "20:30": "at half past eight", "21:00": "at nine"}
    for booking in islice(bookings(seed), 20):
        answer = json.loads(booking.answer)
        assert set(answer) == {"name", "guests", "date", "time", "request"}
        assert booking.mail.endswith(f", {answer['name']}")
        assert f" {words[answer['guests']]}" in booking.mail
        assert f"on {int(answer['date'][3:])} " in booking.mail
        assert hours[answer["time"]] in booking.mail
        assert answer["request"] == "none" or answer["request"].split()[-1] in booking.mail


def test_nothing_held_out_is_in_training(corpus: Path) -> None:
    """Neither the guest, nor the mail, nor the answer: not in the chats, and not in what the base model reads."""
    aside = pq.read_table(corpus / "heldout.parquet").to_pylist()
    read = [row["text"] for row in lines(corpus / "text.jsonl")]
    chats = [[turn["content"] for turn in row["messages"]] for row in lines(corpus / "train.jsonl")]
    everything = "\n\n".join([*read, *("\n\n".join(turns) for turns in chats)])
    guests = {json.loads(row["reference"])["name"] for row in aside}
    assert len(aside) == 64
    assert len(guests) >= 10
    assert all(held_out(guest) for guest in guests)
    assert not [guest for guest in guests if guest in everything]
    assert not {row["prompt"] for row in aside} & {prompt for prompt, _ in chats}
    assert not {row["reference"] for row in aside} & {answer for _, answer in chats}


def test_the_base_model_reads_no_answer(corpus: Path) -> None:
    assert not [row for row in lines(corpus / "text.jsonl") if "{" in row["text"] or '"' in row["text"]]


def test_the_same_seed_gives_the_same_files_and_another_gives_others(corpus: Path, tmp_path: Path) -> None:
    build(tmp_path / "same")
    build(tmp_path / "other", seed=7)
    for name in ("train.jsonl", "text.jsonl", "model/tokenizer.json", "model/config.json"):
        assert (tmp_path / "same" / name).read_bytes() == (corpus / name).read_bytes()
    assert (tmp_path / "other" / "train.jsonl").read_bytes() != (corpus / "train.jsonl").read_bytes()


def test_the_tokenizer_keeps_every_text_and_never_joins_more_than_two_figures(corpus: Path) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(corpus / "model" / "tokenizer.json"))
    for text in ("Hello,\nwe are six on 31 December at nine: 2027 or 20270?", "Grüße, Zoë 日本 ½", ""):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
    figures = [token for token in tokenizer.get_vocab() if token.strip("Ġ").isdigit()]
    assert max(map(len, figures)) == 2
