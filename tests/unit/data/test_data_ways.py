"""The way in which rows are made: chosen by seconds, and invisible in everything but time."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.models import sentences, tokenizer_of

from tuneyard.api import BadInput, TrainData
from tuneyard.data import choose_ways, prepare, prepared_here, ways, ways_before
from tuneyard.data.stream import splits as splits_module
from tuneyard.data.stream import windows as windows_module
from tuneyard.data.stream.shards import Shard
from tuneyard.data.way import Way
from tuneyard.data.ways import COUNTED_BYTES, decided, expects_stream

NEVER, ALWAYS = 1e9, -1.0
Data = dict[str, Any]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tokenizer_of([], eos="<|end|>", chat_template=None)


@pytest.fixture(autouse=True)
def small_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits_module, "LEAST_SPLIT_BYTES", 2048)
    monkeypatch.setattr(splits_module, "_ROWS_OF_A_SHARD", 0)
    monkeypatch.setattr(windows_module, "_FIRST_BYTES", 2048)


def write(path: Path, rows: int) -> str:
    path.write_text("".join(json.dumps({"text": f"{i} {sentences(50)[i % 50]}"}) + "\n" for i in range(rows)))
    return str(path)


@pytest.fixture
def texts(tmp_path: Path) -> str:
    return write(tmp_path / "texts.jsonl", 400)


class Chooser:
    """Chooses for data with `limit_s` in place of ten seconds, in a cache of its own."""

    def __init__(self, cache: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cache, self.tokenizer, self._patch = cache, tokenizer, monkeypatch
        self.how: Any = {"objective": "clm", "seed": 3, "cache_dir": cache}

    def __call__(self, limit_s: float, data: Data, **options: Any) -> dict[str, Way]:
        self._patch.setattr(ways, "PREPARED_WITHIN_S", limit_s)
        return choose_ways(spec_of(data), self.tokenizer, **{"steps": 5, **self.how, **options})

    def prepared(self, limit_s: float, data: Data, **options: Any) -> Any:
        self._patch.setattr(ways, "PREPARED_WITHIN_S", limit_s)
        return prepare(spec_of(data), self.tokenizer, **{"steps": 5, **self.how, **options})


@pytest.fixture
def choose(tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> Chooser:
    return Chooser(tmp_path / "cache", tokenizer, monkeypatch)


def spec_of(data: Data) -> TrainData:
    return TrainData.model_validate({"maxLength": 64, "workers": 0, **data})


def rows_of(prepared: Any, count: int) -> list[tuple[int, ...]]:
    places = prepared.order.at_each(np.arange(count, dtype=np.int64))
    return [tuple(np.asarray(prepared.train[int(place)]["input_ids"]).tolist()) for place in places]


@given(
    asked=st.sampled_from([None, True, False]),
    limited=st.booleans(),
    counted=st.booleans(),
    held_out=st.booleans(),
    size=st.integers(0, 1 << 42),
    prepared=st.booleans(),
    early=st.booleans(),
)
def test_a_clock_decides_only_where_nothing_depends_on_all_rows(
    asked: bool | None, limited: bool, counted: bool, held_out: bool, size: int, prepared: bool, early: bool
) -> None:
    found = decided(
        asked=asked,
        limited=limited,
        counted=counted,
        held_out=held_out,
        size_bytes=lambda: size,
        is_prepared=lambda: prepared,
        begins_early=lambda: early,
    )
    if limited:
        assert found is False
    elif asked is not None:
        assert found is asked
    elif counted:
        assert found is (size > COUNTED_BYTES)
    elif held_out and size > COUNTED_BYTES:
        assert found is True
    else:
        assert found is (None if early and not prepared else False)


@given(
    size=st.integers(0, 1 << 42),
    more=st.integers(0, 1 << 40),
    steps=st.sampled_from([None, 100]),
    held_out=st.sampled_from([0.0, 0.1]),
    cores=st.integers(1, 64),
)
def test_larger_data_are_streamed_where_smaller_ones_are(size: int, more: int, steps: int | None, held_out: float, cores: int) -> None:
    spec = spec_of({"source": "x", "validationFraction": held_out})
    answers = [expects_stream(spec, each, steps=steps, cores=cores) for each in (size, size + more)]
    assert answers[0] <= answers[1]


def test_seconds_decide_where_a_task_gives_its_steps(choose: Chooser, texts: str) -> None:
    assert choose(ALWAYS, {"source": texts}) == {"": Way(streamed=True)}
    assert choose(NEVER, {"source": texts}) == {"": Way(streamed=False)}
    for data in ({"limit": 100}, {"streaming": False}, {"validationFraction": 0.001}):
        assert choose(ALWAYS, {"source": texts, **data}) == {"": Way(streamed=False)}
    assert choose(ALWAYS, {"source": texts}, steps=None) == {"": Way(streamed=False)}, "epochs count the rows"
    assert choose(NEVER, {"source": texts, "streaming": True}) == {"": Way(streamed=True)}
    assert choose(ALWAYS, {"source": texts, "validationFraction": 0.2}) == {"": Way(streamed=True, all_held_out=True)}


def test_what_is_prepared_is_used(choose: Chooser, texts: str) -> None:
    assert not prepared_here(spec_of({"source": texts}), choose.tokenizer, **choose.how)
    choose.prepared(NEVER, {"source": texts})
    assert choose(ALWAYS, {"source": texts}) == {"": Way(streamed=False)}
    assert prepared_here(spec_of({"source": texts}), choose.tokenizer, **choose.how) == {""}
    assert choose(ALWAYS, {"source": texts}, prepared=frozenset()) == {"": Way(streamed=True)}, "another machine has not"
    with Path(texts).open("a") as file:
        file.write(json.dumps({"text": "one more"}) + "\n")
    assert choose(ALWAYS, {"source": texts}) == {"": Way(streamed=True)}, "and other rows have not"


def test_data_of_one_window_are_prepared_since_a_stream_makes_all_of_it_for_its_first_row(choose: Chooser, tmp_path: Path) -> None:
    small = write(tmp_path / "small.jsonl", 20)
    assert choose(ALWAYS, {"source": small}) == {"": Way(streamed=False)}
    assert choose(ALWAYS, {"source": small, "shuffle": False}) == {"": Way(streamed=False)}


def test_a_resumed_run_keeps_its_way(choose: Chooser, texts: str) -> None:
    for streamed in (True, False):
        kept = {"": Way(streamed=streamed)}
        for limit_s in (ALWAYS, NEVER):
            assert choose(limit_s, {"source": texts}, kept=kept) == kept
        assert choose(ALWAYS, {"source": texts, "streaming": not streamed}, kept=kept) == {"": Way(streamed=not streamed)}, "as asked for"


@pytest.mark.parametrize("limit_s", [ALWAYS, NEVER])
def test_an_earlier_version_recorded_no_way_and_its_cursors_tell(choose: Chooser, texts: str, limit_s: float) -> None:
    cursors = choose.prepared(limit_s, {"source": texts}).cursors(8)
    assert ways_before(cursors, None) == {"": Way(streamed=limit_s == ALWAYS)}
    told = {"": {"streamed": False, "rows": 7}}
    assert ways_before(cursors, told) == {"": Way(streamed=False, rows=7)}


@pytest.mark.parametrize(
    "settings", [{}, {"pack": True}, {"shuffle": False}, {"validationFraction": 0.2}, {"validationFraction": 0.2, "pack": True}]
)
def test_both_ways_give_the_same_rows(choose: Chooser, texts: str, settings: Data) -> None:
    streamed = choose.prepared(ALWAYS, {"source": texts, **settings})
    whole = choose.prepared(NEVER, {"source": texts, **settings}, ways={"": Way(streamed=False)})
    assert (streamed.report.streamed, whole.report.streamed) == (True, False)
    count = int(1.5 * len(whole.train))
    assert rows_of(streamed, count) == rows_of(whole, count)
    assert held_out_of(streamed) == held_out_of(whole)
    assert bool(held_out_of(whole)) == ("validationFraction" in settings)


def held_out_of(prepared: Any) -> list[tuple[int, ...]]:
    held_out = prepared.validation
    return [] if held_out is None else [tuple(np.asarray(held_out[i]["input_ids"]).tolist()) for i in range(len(held_out))]


def test_only_what_is_held_out_is_tokenised_for_an_evaluation(choose: Chooser, texts: str) -> None:
    streamed = choose.prepared(ALWAYS, {"source": texts, "validationFraction": 0.2})
    made = set((choose.cache / "shards").glob("*.content.shard"))
    count = len(streamed.validation)
    shards = [Shard(path) for path in set((choose.cache / "shards").glob("*.content.shard")) - made]
    assert count > 40
    assert sum(shard.facts.held_out for shard in shards) == sum(shard.facts.samples for shard in shards) // 400 * count == count
    assert not any(shard.facts.rows or shard.facts.tokens for shard in shards)


def test_workers_make_what_is_held_out_when_they_have_nothing_else_to_do(choose: Chooser, texts: str) -> None:
    streamed = choose.prepared(ALWAYS, {"source": texts, "validationFraction": 0.2, "workers": 1})
    beside = streamed.validation._stream
    end = time.monotonic() + 60
    while not all(beside.path_of(split).exists() for split in beside.splits):
        assert time.monotonic() < end, "no worker has made them"
        time.sleep(0.05)
    assert len(streamed.train) > 0, "the rank has read no row yet"


def mixture(folder: Path, **changes: Any) -> Data:
    parts = [{"source": write(folder / f"{name}.jsonl", rows), "name": name} for name, rows in (("a", 400), ("b", 250), ("c", 12))]
    return {"mix": parts, **changes}


@pytest.mark.parametrize("changes", [{}, {"whenExhausted": "leave"}, {"whenExhausted": "stop", "pack": True, "validationFraction": 0.3}])
def test_a_mixture_has_the_same_rows_however_its_parts_are_made(choose: Chooser, tmp_path: Path, changes: Data) -> None:
    """Its shares come from the rows of its parts, of which a stream has an estimate."""
    data = mixture(tmp_path, **changes)
    streamed, whole = choose.prepared(ALWAYS, data), choose.prepared(NEVER, data)
    assert [way.streamed for way in streamed.ways.values()] == [True, True, False]
    assert [way.streamed for way in whole.ways.values()] == [False, False, False]
    assert streamed.mixture.parts == whole.mixture.parts
    assert rows_of(streamed, 900) == rows_of(whole, 900)
    assert held_out_of(streamed) == held_out_of(whole)


def test_parts_of_a_mixture_share_what_is_read_before_the_first_step(
    choose: Chooser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A data set of this size alone is one window, which a stream makes whole."""
    monkeypatch.setattr(splits_module, "LEAST_SPLIT_BYTES", 512)
    size = 4 * 2048
    parts = [{"source": write(tmp_path / f"{number}.jsonl", 100)} for number in range(4)]
    assert all(size / 4 < Path(part["source"]).stat().st_size < size for part in parts)
    assert choose(ALWAYS, parts[0]) == {"": Way(False)}
    assert set(choose(ALWAYS, {"mix": parts}).values()) == {Way(True, among=4)}
    assert {way.among for way in choose(ALWAYS, {"mix": parts}, steps=None).values()} == {1}, "epochs prepare them anyway"
    streamed, whole = choose.prepared(ALWAYS, {"mix": parts}), choose.prepared(NEVER, {"mix": parts})
    rows_of(streamed, 8)
    assert len(list((choose.cache / "shards").glob("*.content.shard"))) <= 4 * (1 + 2), "a sample and the first windows"
    assert rows_of(streamed, 500) == rows_of(whole, 500)
    before = choose.prepared(NEVER, {"mix": parts}, ways=ways_before(whole.cursors(8), None))
    assert rows_of(before, 100) != rows_of(whole, 100), "earlier versions shared nothing, and their runs go on as they began"


def test_a_mixture_keeps_the_rows_that_it_began_with(choose: Chooser, tmp_path: Path) -> None:
    data = mixture(tmp_path)
    before = choose.prepared(NEVER, data, steps=None)  # counted, as earlier versions did
    kept = ways_before(before.cursors(8), None)
    after = choose.prepared(NEVER, data, ways=choose(ALWAYS, data, kept=kept))
    assert after.mixture.parts == before.mixture.parts
    assert [part.rows for part in choose.prepared(NEVER, data).mixture.parts] != [part.rows for part in before.mixture.parts]


def test_parts_of_a_mixture_are_judged_by_the_sum_of_their_seconds(
    choose: Chooser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ways, "_seconds_per_token", lambda *_: 1.0)
    data = mixture(tmp_path)
    seconds = [
        ways._DataSet(spec_of({"source": part["source"]}), choose.tokenizer, "clm", 3, choose.cache, among=3).seconds
        for part in data["mix"][:2]
    ]
    assert min(seconds) > 0
    between = (max(seconds) + sum(seconds)) / 2
    assert [way.streamed for way in choose(between, data).values()] == [True, True, False]
    assert not any(way.streamed for way in choose(sum(seconds) * 1.01, data).values())


def test_a_slow_tokenizer_is_timed_for_a_moment_only(choose: Chooser, texts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch of this clock takes a minute."""
    ticks = iter(range(0, 100_000, 60))
    monkeypatch.setattr("tuneyard.data.ways.time.process_time", lambda: float(next(ticks)))
    found = ways._DataSet(spec_of({"source": texts}), choose.tokenizer, "clm", 3, choose.cache)
    assert found.seconds > 60
    assert next(ticks) == 120, "one batch was timed"


def test_a_cache_that_cannot_be_written_is_enough_for_prepared_parts(choose: Chooser, tmp_path: Path) -> None:
    data = mixture(tmp_path)
    before = choose.prepared(NEVER, data)
    shards = choose.cache / "shards"
    shards.rename(tmp_path / "elsewhere")
    shards.write_text("no folder")
    after = choose.prepared(ALWAYS, data)
    assert after.cached
    assert after.mixture.parts == before.mixture.parts


def test_an_unusable_part_is_named(choose: Chooser, tmp_path: Path) -> None:
    data = mixture(tmp_path)
    Path(data["mix"][1]["source"]).write_text('{"other": 1}\n' * 2000)
    with pytest.raises(BadInput, match="part b of the mixture"):
        choose(ALWAYS, data)


def test_a_sample_that_is_longer_than_allowed_is_refused_when_it_is_read(choose: Chooser, tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": "a b c"}) + "\n" for _ in range(2000)) + json.dumps({"text": "word " * 60}) + "\n")
    found = choose.prepared(ALWAYS, {"source": str(path), "shuffle": False})
    rows = found.train
    assert rows.longest < 30, "the sample has no long one"
    rows.refuse_longer(30)
    assert rows_of(found, 1999)
    with pytest.raises(BadInput, match=r"a sample has 64 tokens, and the model has positions for 30"):
        rows_of(found, 2001)
