"""A look at some rows, by the code that trains: what it says about a data set, and planned tokens beside prepared ones."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.builders.models import write_tokenizer
from tests.builders.templates import ALL

from tuneyard.api import BadInput, TrainData, TrainTask
from tuneyard.data import prepare, probing
from tuneyard.data.counting import count_data
from tuneyard.data.probe import Probe, probe
from tuneyard.data.probe_findings import findings
from tuneyard.data.probing import Wanted, probe_all

QWEN3 = next(template for template in ALL if str(template) == "trl-qwen3")
WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "one", "dog", "run", "over", "two", "hills"]
TOOL = {"type": "function", "function": {"name": "weather", "description": "the weather", "parameters": {"type": "object"}}}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"type": "function", "function": {"name": "weather", "arguments": {"city": "Graz"}}}],
}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return QWEN3.tokenizer()


def words(number: int, count: int) -> str:
    return " ".join(WORDS[(number * 7 + place) % len(WORDS)] for place in range(count))


def asked(number: int, length: int) -> dict[str, str]:
    return {"role": "user", "content": words(number, length)}


KINDS: dict[str, Any] = {
    "plain": lambda n, length: {"messages": [asked(n, length), {"role": "assistant", "content": words(n, 5)}]},
    "system": lambda n, length: {
        "messages": [{"role": "system", "content": words(n, 30)}, asked(n, length), {"role": "assistant", "content": "yes"}]
    },
    "tools": lambda n, length: {
        "messages": [asked(n, length), CALL, {"role": "tool", "content": "sun"}, {"role": "assistant", "content": "ok"}],
        "tools": [TOOL] * (1 + n % 4),
    },
    "reasoning": lambda n, length: {
        "messages": [asked(n, 5), {"role": "assistant", "reasoning_content": words(n, length), "content": "yes"}]
    },
    "turns": lambda n, length: {"messages": [asked(n, 4), {"role": "assistant", "content": words(n, 3)}] * (1 + length // 5)},
    "pairs": lambda n, length: {"prompt": words(n, length), "completion": words(n, 1 + length // 3)},
    "texts": lambda n, length: {"text": words(n, length)},
    "preferences": lambda n, length: {"prompt": words(n, length), "chosen": words(n, 4) + "!", "rejected": words(n, 2 + length)},
}
CHATS = ("plain", "system", "tools", "reasoning", "turns")


def prepared_tokens(prepared: Any) -> float:
    """Tokens of the rows; of preferences those of the longer answers, to which rows are padded."""
    total = 0
    for row in prepared.train:
        starts = [place for place, position in enumerate(row.get("position_ids", [])) if position == 0] or [0]
        total += max(np.diff([*starts, len(row["input_ids"])]))
    return total


@settings(max_examples=24, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_planned_tokens_are_those_that_are_prepared(data: Any, tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    kinds = data.draw(st.lists(st.sampled_from(CHATS), min_size=1, max_size=4) | st.sampled_from([["pairs"], ["texts"], ["preferences"]]))
    count, longest = data.draw(st.sampled_from([30, 150, 500])), data.draw(st.sampled_from([5, 40, 200]))
    chat, most = data.draw(st.booleans()), data.draw(st.sampled_from([64, 4096]))
    lengths = np.random.default_rng(data.draw(st.integers(0, 9))).pareto(2.0, count)
    folder = tmp_path_factory.mktemp("rows")
    with (folder / "rows.jsonl").open("w") as file:
        for number in range(count):  # kinds take turns: a look at every nth row would see one of them
            file.write(json.dumps(KINDS[kinds[number % len(kinds)]](number, 1 + int(min(lengths[number], 3) * longest / 3))) + "\n")
    given_data = {"source": str(folder / "rows.jsonl"), "maxLength": most, "maxBadFraction": 1.0}
    given_data |= {"chat": True} if chat and kinds[0] in ("pairs", "preferences") else {}
    objective: Any = {"preferences": "dpo", "texts": "clm"}.get(kinds[0], "sft")
    task = TrainTask.model_validate({"model": {"name": "m"}, "objective": objective, "data": given_data})
    found = probe(task.data, tokenizer, objective=objective)
    if max(found.needed) > most:  # which of the samples are left out is not known; a finding says how many
        return
    made = prepare(task.data, tokenizer, objective=objective, seed=0, cache_dir=folder / "cache")
    counted = count_data(task, probed=found)
    planned = (
        sum(min(most, tokens) for tokens in counted.tokens(counted.characters_per_token.likely)) * len(made.train) / len(counted.characters)
    )
    assert planned == pytest.approx(prepared_tokens(made), rel=0.05)


def look(rows: Sequence[Mapping[str, Any]], tokenizer: Any, folder: Path, **data: Any) -> tuple[TrainData, Probe]:
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = TrainData.model_validate({"source": str(folder / "rows.jsonl"), **data})
    return spec, probe(spec, tokenizer, objective="sft")


def told(rows: Sequence[Mapping[str, Any]], tokenizer: Any, folder: Path, **data: Any) -> list[tuple[str, bool]]:
    return [(f"{each.field}: {each}", each.fatal) for each in findings(*look(rows, tokenizer, folder, **data))]


PAIRS = [{"prompt": words(n, 60), "completion": words(n, 6)} for n in range(300)]
STRANGE = [{"messages": [{"role": "client", "content": "hi"}, {"role": "clerk", "content": "yes"}]}] * 50


@pytest.mark.parametrize(
    ("rows", "data", "parts", "fatal"),
    [
        (
            PAIRS,
            {"chat": True, "maxLength": 32},
            ["maxLength: maxLength 32 leaves nothing to learn of the 200 samples", "set data.maxLength: "],
            True,
        ),
        (PAIRS, {"chat": True, "maxLength": 32, "overlong": "drop"}, ["each has more tokens"], True),
        (PAIRS, {"chat": True, "maxLength": 32, "overlong": "error"}, ["overlong is error"], True),
        (PAIRS, {}, ['chat: prompts run into their answers ("…', "data.template: response"], False),
        (STRANGE, {}, ["50 of 50 rows cannot be used", "client, clerk", "data.roles: {client: user, clerk: assistant}"], True),
        ([*STRANGE[:9], *[KINDS["plain"](n, 5) for n in range(91)]], {}, ["9 of 100 rows cannot be used"], True),
    ],
)
def test_what_cannot_work_is_found(
    rows: Sequence[Mapping[str, Any]], data: dict[str, Any], parts: Sequence[str], fatal: bool, tokenizer: Any, tmp_path: Path
) -> None:
    [(words_, is_fatal)] = told(rows, tokenizer, tmp_path, **data)
    assert [part for part in parts if part not in words_] == []
    assert is_fatal is fatal


@pytest.mark.parametrize(
    ("rows", "data"),
    [
        (PAIRS, {"chat": True}),
        (PAIRS, {"chat": False}),
        (PAIRS, {"template": "response"}),
        ([{**row, "prompt": f"{row['prompt']}\n"} for row in PAIRS], {}),
        ([KINDS["texts"](n, 200) for n in range(50)], {"pack": True, "maxLength": 64}),
        ([*STRANGE[:1], *[KINDS["plain"](n, 5) for n in range(199)]], {}),
    ],
)
def test_what_is_meant_is_left_alone(rows: Sequence[Mapping[str, Any]], data: dict[str, Any], tokenizer: Any, tmp_path: Path) -> None:
    assert [words_ for words_, _ in told(rows, tokenizer, tmp_path, **data) if "tolerates" not in words_] == []


def test_the_length_that_is_named_would_do(tokenizer: Any, tmp_path: Path) -> None:
    spec, found = look(PAIRS, tokenizer, tmp_path, chat=True, maxLength=32)
    [finding] = findings(spec, found)
    enough = int(finding.next_step.split("data.maxLength: ")[1].split(",")[0])
    made = prepare(spec.model_copy(update={"max_length": enough}), tokenizer, objective="sft", seed=0, cache_dir=tmp_path / "cache")
    assert (made.report.dropped, made.report.cut_answers) == (0, 0)
    with pytest.raises(BadInput, match=r"within maxLength 32: it begins at token \d+, and \d+ tokens hold the whole"):
        prepare(spec, tokenizer, objective="sft", seed=0, cache_dir=tmp_path / "cache")


def test_rows_of_a_large_set_are_taken_from_all_of_it(tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuneyard.data.probe.READ_WHOLE_BYTES", 1000)
    rows = [{"prompt": "the cat", "completion": "sat" if n < 3000 else words(n, 50)} for n in range(6000)]
    _, found = look(rows, tokenizer, tmp_path, chat=True)
    assert (found.rows, found.complete) == (200, False)
    assert 50 < sum(size > 100 for size in found.sizes) < 150


def test_a_limit_is_kept(tokenizer: Any, tmp_path: Path) -> None:
    _, found = look([*PAIRS[:100], *STRANGE], tokenizer, tmp_path, limit=5)
    assert (found.rows, found.bad, found.complete) == (5, 0, True)


def test_another_process_finds_the_same_and_what_was_found_is_kept(tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEYARD_CACHE", str(tmp_path / "cache"))
    tokenizer.save_pretrained(tmp_path / "model")
    spec, found = look(PAIRS, tokenizer, tmp_path, chat=True)
    wanted = [Wanted(spec, "sft", tmp_path / "model")]
    asked_ = subprocess.run(
        [sys.executable, "-m", "tuneyard.data.probing"], input=json.dumps([wanted[0].request()]), capture_output=True, text=True, check=True
    )
    assert Probe(**json.loads(asked_.stdout)["probe"]) == found
    assert probe_all(wanted) == [found]
    monkeypatch.setattr(probing, "_asked", lambda _: pytest.fail("it looked again"))
    assert probe_all([Wanted(spec.model_copy(update={"max_length": 8}), "sft", tmp_path / "model")]) == [found]


def test_a_tokenizer_that_cannot_be_loaded_is_a_reason_and_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEYARD_CACHE", str(tmp_path / "cache"))
    write_tokenizer(tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").write_text("{")
    (tmp_path / "rows.jsonl").write_text(json.dumps(PAIRS[0]) + "\n")
    [why] = probe_all([Wanted(TrainData(source=str(tmp_path / "rows.jsonl")), "sft", tmp_path / "model")])
    assert isinstance(why, str)
    assert "the tokenizer cannot be loaded" in why
