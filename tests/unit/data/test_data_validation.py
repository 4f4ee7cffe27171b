"""A data set of `validation`: made before the first step or until the first evaluation, with the same rows, and refused if unusable."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.builders.models import sentences, tokenizer_of, write_preferences

from tuneyard.api import BadInput, StorageError, TrainData
from tuneyard.data import choose_ways, prepare, prepared_here, read_so_far, ways
from tuneyard.data.stream import EvaluationRows
from tuneyard.data.stream import splits as splits_module
from tuneyard.data.stream import windows as windows_module
from tuneyard.data.way import VALIDATION, Way
from tuneyard.tracking import Event, Stage, Warned

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
    monkeypatch.setattr(ways, "_EVALUATED_AT_ONCE_BYTES", 4096)


class Preparer:
    """Prepares texts with a data set of their own for evaluation, in a cache of its own. `limit_s` stands for ten seconds."""

    def __init__(self, folder: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.tokenizer, self._patch = folder, tokenizer, monkeypatch
        self.held_out = folder / "held-out.jsonl"
        write(folder / "texts.jsonl", 400)
        write(self.held_out, 200)
        self.heard: list[Event] = []

    def spec(self, **changes: Any) -> TrainData:
        data = {"source": str(self.folder / "texts.jsonl"), "validation": {"source": str(self.held_out)}, "maxLength": 64, "workers": 0}
        return TrainData.model_validate(data | changes)

    def how(self, objective: str = "clm") -> Any:
        return {"objective": objective, "seed": 3, "cache_dir": self.folder / "cache"}

    def ways(self, limit_s: float, steps: int | None = 5, kept: Any = None, prepared: Any = None, **changes: Any) -> dict[str, Way]:
        self._patch.setattr(ways, "PREPARED_WITHIN_S", limit_s)
        return choose_ways(self.spec(**changes), self.tokenizer, steps=steps, kept=kept, prepared=prepared, **self.how())

    def __call__(self, limit_s: float, steps: int | None = 5, objective: str = "clm", **changes: Any) -> Any:
        self._patch.setattr(ways, "PREPARED_WITHIN_S", limit_s)
        return prepare(self.spec(**changes), self.tokenizer, steps=steps, emit=self.heard.append, task="t", **self.how(objective))

    def warnings(self) -> list[str]:
        return [event.message for event in self.heard if isinstance(event, Warned)]


@pytest.fixture
def made(tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> Preparer:
    return Preparer(tmp_path, tokenizer, monkeypatch)


def write(path: Path, rows: int) -> Path:
    path.write_text("".join(json.dumps({"text": f"{path.stem} {i} {sentences(50)[i % 50]}"}) + "\n" for i in range(rows)))
    return path


def evaluated(prepared: Any) -> list[list[Any]]:
    """Tokens and labels of all rows of the evaluation, in order."""
    rows = prepared.validation
    columns = ("input_ids", "labels", *(["position_ids"] if "position_ids" in rows.column_names else []))
    return [[np.asarray(rows[number][name]).tolist() for name in columns] for number in range(len(rows))]


@pytest.mark.parametrize("steps", [5, None], ids=["steps", "epochs"])
def test_seconds_decide_also_where_epochs_count_the_rows_of_training(made: Preparer, steps: int | None) -> None:
    assert made.ways(ALWAYS, steps) == {"": Way(steps is not None), VALIDATION: Way(True)}
    assert made.ways(NEVER, steps) == {"": Way(False), VALIDATION: Way(False)}
    assert made.ways(ALWAYS, steps, streaming=False) == {"": Way(False), VALIDATION: Way(False)}
    assert made.ways(NEVER, steps, streaming=True) == {"": Way(True), VALIDATION: Way(True)}
    for small in ({"limit": 100}, {"source": str(write(made.folder / "few.jsonl", 20))}):
        data = {"validation": {"source": str(made.held_out), **small}}
        assert made.ways(ALWAYS, steps, **data)[VALIDATION] == Way(False)


def test_it_is_judged_together_with_the_training_data(made: Preparer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways, "_seconds_per_token", lambda *_: 1.0)
    parts = {
        name: ways._DataSet(spec, made.tokenizer, "clm", 3, made.folder / "cache", evaluated=name == VALIDATION).seconds
        for name, spec in ways.data_sets(made.spec()).items()
    }
    assert min(parts.values()) > 0
    assert made.ways((max(parts.values()) + sum(parts.values())) / 2) == {"": Way(True), VALIDATION: Way(True)}
    assert made.ways(1.01 * sum(parts.values())) == {"": Way(False), VALIDATION: Way(False)}


def test_what_is_prepared_is_used_and_a_resumed_run_keeps_its_way(made: Preparer) -> None:
    for way in (Way(True), Way(False)):
        assert made.ways(ALWAYS, kept={"": Way(True), VALIDATION: way})[VALIDATION] == way
        assert made.ways(NEVER, kept={"": Way(True), VALIDATION: way})[VALIDATION] == way
    made(NEVER)
    assert made.ways(ALWAYS) == {"": Way(False), VALIDATION: Way(False)}
    assert prepared_here(made.spec(), made.tokenizer, **made.how()) == {"", VALIDATION}
    assert made.ways(ALWAYS, prepared=frozenset()) == {"": Way(True), VALIDATION: Way(True)}, "another machine has not"
    write(made.held_out, 201)
    assert made.ways(ALWAYS) == {"": Way(False), VALIDATION: Way(True)}
    assert made(NEVER).cached, "another set for evaluation leaves the training data as they are"


@pytest.mark.parametrize(
    "changes",
    [{}, {"pack": True}, {"shuffle": False}, {"mix": [{"source": "texts.jsonl"}, {"source": "more.jsonl"}], "source": None, "pack": True}],
    ids=["rows", "packed", "in order", "mixture"],
)
def test_both_ways_give_the_same_rows(made: Preparer, changes: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(made.folder)
    write(made.folder / "more.jsonl", 300)
    streamed, counted, whole = made(ALWAYS, **changes), made(ALWAYS, steps=None, **changes), made(NEVER, **changes)
    assert [isinstance(each.validation, EvaluationRows) for each in (streamed, counted, whole)] == [True, True, False]
    assert (streamed.report.streamed, counted.report.streamed, whole.report.streamed) == (True, False, False)
    assert read_so_far(streamed).validation_rows == 0, "none is made yet"
    assert evaluated(streamed) == evaluated(counted) == evaluated(whole)
    for each in (streamed, counted, whole):
        assert read_so_far(each).validation_rows == len(whole.validation) > 10
        assert read_so_far(each).validation_streamed == (each is not whole)


def test_pairs_are_evaluated_alike(made: Preparer) -> None:
    held_out = str(write_preferences(made.folder / "held-out-pairs.jsonl", 100))
    pairs = {"source": str(write_preferences(made.folder / "pairs.jsonl", 40)), "validation": {"source": held_out}}
    streamed, whole = (made(limit_s, steps=None, objective="dpo", **pairs) for limit_s in (ALWAYS, NEVER))
    assert read_so_far(streamed).validation_streamed
    assert evaluated(streamed) == evaluated(whole)
    assert len(whole.validation) == 100


def test_other_processes_make_the_rows_before_they_are_needed(made: Preparer) -> None:
    rows = made(ALWAYS, workers=1).validation
    end = time.monotonic() + 60
    while not all(rows._stream.path_of(split).exists() for split in rows._stream.splits):
        assert time.monotonic() < end, "no process has made them"
        time.sleep(0.05)
    made.held_out.unlink()
    assert len(rows) > 100, "they need their file no more"


# --- bad input


def test_a_set_that_cannot_be_used_is_refused_before_the_training_data_are_prepared(made: Preparer) -> None:
    for content, why in (("", r"held-out\.jsonl: the file is empty"), ('{"other": 1}\n' * 2000, r"held-out\.jsonl")):
        made.held_out.write_text(content)
        for limit_s in (ALWAYS, NEVER):
            made.heard.clear()
            with pytest.raises(BadInput, match=why):
                made(limit_s)
            assert not any(event.name.startswith("tokenising") for event in made.heard if isinstance(event, Stage))
    made.held_out.unlink()
    with pytest.raises(BadInput, match=r"held-out\.jsonl"):
        made(ALWAYS)


def test_too_many_bad_rows_in_the_middle_are_refused_as_those_of_prepared_data_are(made: Preparer) -> None:
    lines = made.held_out.read_text().splitlines(keepends=True)
    made.held_out.write_text("".join([*lines[:100], *("broken\n" for _ in range(40)), *lines[100:]]))
    rows = made(ALWAYS).validation
    said = []
    for build in (rows.build, lambda: made(NEVER, streaming=False)):
        with pytest.raises(BadInput) as refused:
            build()
        said.append(str(refused.value).partition(":\n")[0])
    assert said[0].endswith("held-out.jsonl: 40 of 240 rows are bad (16.7%; 1.0% are tolerated)")
    assert said[0] == said[1]


def test_rows_that_are_left_out_are_told_when_they_are_known(made: Preparer) -> None:
    lines = made.held_out.read_text().splitlines(keepends=True)
    made.held_out.write_text("".join([*lines[:100], "broken\n", *lines[100:]]))
    prepared = made(ALWAYS)
    assert len(prepared.validation) == 200
    told = [message for message in made.warnings() if "bad row" in message]
    assert len(told) == 1
    assert told[0].startswith("validation: 1 bad row is left out: ")


def test_a_file_that_is_gone_before_the_first_evaluation_is_named(made: Preparer) -> None:
    rows = made(ALWAYS).validation
    made.held_out.unlink()
    with pytest.raises(BadInput, match=r"held-out\.jsonl: "):
        rows.build()


def test_a_cache_that_cannot_be_written_any_more_is_named(made: Preparer) -> None:
    rows = made(ALWAYS).validation
    shards = made.folder / "cache" / "shards"
    shards.rename(made.folder / "elsewhere")
    shards.write_text("no folder")
    with pytest.raises(StorageError, match="shards"):
        rows.build()


def test_a_sample_beyond_the_positions_of_the_model_is_refused(made: Preparer) -> None:
    with made.held_out.open("a") as file:
        file.write(json.dumps({"text": "word " * 60}) + "\n")
    rows = made(ALWAYS).validation
    rows.refuse_longer(50)
    with pytest.raises(BadInput, match=r"held-out\.jsonl: a sample has 64 tokens, and the model has positions for 50"):
        rows.build()
