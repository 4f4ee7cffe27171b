"""Several data sets as one: what parts take over, what they keep, and what the report says."""

import json
import re
from pathlib import Path

import pytest
from tests.builders.models import CHAT_TEMPLATE, tokenizer_of

from tuneyard.api import BadInput, TrainData
from tuneyard.data import prepare
from tuneyard.tracking import Event, Stage, Warned


def _file(path: Path, rows: list[dict]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture
def parts(tmp_path: Path) -> dict[str, str]:
    chats = [{"messages": [{"role": "user", "content": f"q{i}"}, {"role": "assistant", "content": f"answer {i}"}]} for i in range(40)]
    return {
        "chats": _file(tmp_path / "chats.jsonl", chats),
        "pairs": _file(tmp_path / "pairs.jsonl", [{"ask": f"ask {i}", "say": f"say {i}"} for i in range(25)]),
        "texts": _file(tmp_path / "texts.jsonl", [{"text": f"text number {i}"} for i in range(10)]),
        "empty": _file(tmp_path / "empty.jsonl", []),
    }


def _prepare(data: dict, tmp_path: Path, **options):
    tokenizer = tokenizer_of(["<|user|>", "<|assistant|>", "<|system|>"], eos="<|end|>", chat_template=CHAT_TEMPLATE)
    return prepare(TrainData.model_validate(data), tokenizer, objective="sft", seed=5, cache_dir=tmp_path / "cache", **options)


def test_parts_of_different_formats_become_one_order(parts: dict[str, str], tmp_path: Path) -> None:
    mix = [
        {"source": parts["chats"], "weight": 2, "name": "talk"},
        {"source": parts["pairs"], "weight": 1, "columns": {"prompt": "ask", "completion": "say"}},
        {"source": parts["texts"], "weight": 1, "lossOn": "all"},
    ]
    prepared = _prepare({"mix": mix, "maxLength": 64}, tmp_path)
    assert [part["name"] for part in prepared.report.parts] == ["talk", "pairs.jsonl", "texts.jsonl"]
    assert (prepared.report.samples, len(prepared.train), prepared.order.epoch_rows) == (75, 75, 75)
    assert prepared.report.format == "chat + prompt-completion + text"
    assert [part["share"] for part in prepared.report.parts] == [0.5, 0.25, 0.25]
    assert prepared.chats
    rows = [prepared.order.at(position) for position in range(80)]
    assert {prepared.order.part_of(row) for row in rows} == {0, 1, 2}
    assert sorted(row for row in rows if row < 40) == list(range(40))  # half of 80 places: each chat once
    assert _prepare({"mix": mix, "maxLength": 64}, tmp_path).cached


def test_each_part_has_its_own_held_out_samples(parts: dict[str, str], tmp_path: Path) -> None:
    mix = [{"source": parts["chats"]}, {"source": parts["texts"]}]
    prepared = _prepare({"mix": mix, "validationFraction": 0.2, "maxLength": 64}, tmp_path)
    assert prepared.validation is not None
    assert len(prepared.train) + len(prepared.validation) == 50
    given = _prepare({"mix": mix, "validation": {"source": parts["texts"]}, "maxLength": 64}, tmp_path)
    assert (len(given.train), len(given.validation)) == (50, 10)


@pytest.mark.parametrize("streaming", [False, True])
def test_events_name_their_part_and_what_all_parts_share_is_said_once(parts: dict[str, str], tmp_path: Path, streaming: bool) -> None:
    events: list[Event] = []
    mix = [{"source": parts["chats"], "name": "talk"}, {"source": parts["chats"], "name": "again"}, {"source": parts["texts"]}]
    data = TrainData.model_validate({"mix": mix, "maxLength": 8, "pack": True, "streaming": streaming, "workers": 0})
    tokenizer = tokenizer_of(["<|user|>", "<|assistant|>", "<|system|>"], eos="<|end|>", chat_template=None)
    prepare(data, tokenizer, objective="sft", seed=5, cache_dir=tmp_path / "cache", emit=events.append)
    stages = [event.name for event in events if isinstance(event, Stage)]
    warnings = [event.message for event in events if isinstance(event, Warned)]
    for name in ("talk", "texts.jsonl"):  # "again" is found in the cache
        told = [stage for stage in stages if stage.startswith(f"{name}: ")]
        assert any("streaming about" in stage if streaming else stage.endswith("packing") for stage in told)
        assert not streaming or any(re.search(r"by a sample of [\d.]+ (B|KiB) of [\d.]+ (B|KiB)$", stage) for stage in told)
    assert all(": " in stage for stage in stages)
    assert sum("has no chat template" in warning for warning in warnings) == 1
    assert any(warning.startswith("again: ") and "were cut" in warning for warning in warnings)


def test_an_empty_part_is_named(parts: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"part empty.jsonl of the mixture: .*empty"):
        _prepare({"mix": [{"source": parts["chats"]}, {"source": parts["empty"]}]}, tmp_path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"source": "a", "mix": [{"source": "b"}]}, "give one of source, from and mix"),
        ({"mix": []}, "exactly one of source and from"),
        ({"mix": [{"source": "b"}], "limit": 3}, "limit belongs to the parts"),
        ({"mix": [{"source": "b", "weight": 1}, {"source": "c"}]}, "every part of the mixture a weight, or none"),
        ({"mix": [{"source": "b", "name": "x"}, {"source": "c", "name": "x"}]}, "two parts of the mixture are named x"),
        ({"mix": [{"source": "b", "weight": 0}]}, "greater than 0"),
        ({"mix": [{"weight": 1}]}, "exactly one of source and from"),
        ({"mix": [{"source": "b", "mix": []}]}, "Extra inputs"),
    ],
)
def test_mixtures_that_cannot_be_meant_are_refused(data: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainData.model_validate(data)
