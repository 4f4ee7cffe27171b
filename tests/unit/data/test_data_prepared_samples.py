"""Prepared data are read split by split, and their bad rows are named by their line all the same."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuneyard.api import TrainData
from tuneyard.data import lines as lines_module
from tuneyard.data.prepared_samples import prepared_samples
from tuneyard.data.samples import Tally
from tuneyard.data.sources import locate
from tuneyard.data.stream import reading as reading_module
from tuneyard.data.stream import splits as splits_module


@pytest.fixture(autouse=True)
def small_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits_module, "LEAST_SPLIT_BYTES", 300)
    monkeypatch.setattr(splits_module, "_ROWS_OF_A_SHARD", 0)
    for module in (lines_module, reading_module):
        monkeypatch.setattr(module, "LONGEST_ROW_BYTES", 2000)


def samples_of(folder: Path, **changes: Any) -> tuple[list[tuple[str, str]], Tally]:
    data = TrainData.model_validate({"source": str(folder), "maxBadFraction": 1.0} | changes)
    located, tally = locate(str(folder)), Tally(str(folder))
    _, _, samples = prepared_samples(located, tally, spec=data, objective="clm")
    return [(placed.place, placed.sample.text) for placed in samples], tally  # type: ignore[union-attr]


ROWS = st.lists(st.sampled_from(["ok", "long", "", "{broken", "x" * 2500]), min_size=1, max_size=60)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(files=st.lists(ROWS, min_size=1, max_size=3), end=st.sampled_from(["\n", "\r\n"]), mark=st.booleans())
def test_every_row_is_named_by_its_line(files: list[list[str]], end: str, mark: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("data")
    good, bad = [], 0
    for number, kinds in enumerate(files):
        path, written = folder / f"{number}.jsonl", []
        for line, kind in enumerate(["ok", *kinds], start=1):
            text = f"{number} {line} {'y' * 500 if kind == 'long' else ''}"
            row = json.dumps({"text": text}) if kind in ("ok", "long") else kind
            written.append(row)
            if kind in ("ok", "long"):
                good.append((f"{path}:{line}", text))
            bad += kind.startswith(("{", "x"))
        path.write_bytes(b"\xef\xbb\xbf" * mark + end.join(written).encode())
    found, tally = samples_of(folder)
    assert found == good
    assert (tally.good, tally.bad) == (len(good), bad)


def test_a_limit_ends_reading(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": f"row {i}"}) + "\n" for i in range(500)))
    found, tally = samples_of(tmp_path, limit=37)
    assert [text for _, text in found] == [f"row {i}" for i in range(37)]
    assert tally.good == 37
