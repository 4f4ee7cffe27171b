"""A look into a set that is too large to be read: a sample from everywhere, the same each time, that tells the whole within its bounds."""

from __future__ import annotations

import gzip
import itertools
import json
import random
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.builders.models import tokenizer_of

from tuneyard.cli import main
from tuneyard.data import inspect, inspection, sampling
from tuneyard.data.records import BadRow, Record
from tuneyard.data.row_statistics import Bin, binned, most_duplicates
from tuneyard.data.sampling import RowSample
from tuneyard.data.sources import locate

ROWS = 24_000


def row(number: int) -> dict[str, Any]:
    drawn = random.Random(number)
    return {"prompt": f"question {number}", "completion": drawn.randbytes(int(3 * drawn.lognormvariate(3, 1) + 1)).hex()}


@cache
def all_rows() -> list[dict[str, Any]]:
    return [row(number) for number in range(ROWS)]


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(each) + "\n" for each in rows)


@pytest.fixture(autouse=True)
def _small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets of megabytes are large here."""
    monkeypatch.setattr(inspection, "SAMPLED_FROM_BYTES", 1 << 20)
    monkeypatch.setattr(sampling, "BLOCK_BYTES", 4 << 10)


@pytest.fixture(scope="module", params=["jsonl", "jsonl.gz", "parquet", "csv", "text", "mixed"])
def large(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ROWS rows in four files."""
    folder = tmp_path_factory.mktemp(request.param)
    for part in range(4):
        kind = ("jsonl", "parquet", "csv", "jsonl.gz")[part] if request.param == "mixed" else request.param
        path = folder / f"part-{part}.{kind if kind != 'text' else 'txt'}"
        rows = all_rows()[part * ROWS // 4 : (part + 1) * ROWS // 4]
        if kind == "jsonl":
            path.write_text(lines(rows))
        elif kind == "jsonl.gz":
            path.write_bytes(gzip.compress(lines(rows).encode()))
        elif kind == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=500, compression="none", use_dictionary=False)
        elif kind == "text":
            path.write_text("".join(f"{each['prompt']} {each['completion']}\n" for each in rows))
        else:
            body = "".join(f'"{each["prompt"]},\nthe rest of it","{each["completion"]}"\n' for each in rows)
            path.write_text(f"prompt,completion\n{body}")
    return folder


def test_a_sample_tells_the_whole(large: Path) -> None:
    seen, whole = inspect(str(large)), inspect(str(large), everything=True)
    assert whole.complete
    assert whole.sampled is None
    assert (whole.samples, whole.bad) == (ROWS, 0)
    assert not seen.complete
    assert seen.sampled is not None
    assert (seen.format, seen.bad) == (whole.format, 0), seen.bad_examples
    assert 1_000 < seen.samples < ROWS / 2
    assert seen.sampled.rows == pytest.approx(ROWS, rel=0.15)
    assert seen.sampled.read_bytes < seen.size_bytes * (4 if "gz" in large.name else 1)
    assert seen.characters is not None
    assert whole.characters is not None
    assert seen.characters.p50 == pytest.approx(whole.characters.p50, rel=0.15)
    assert seen.characters.p90 == pytest.approx(whole.characters.p90, rel=0.15)
    assert inspect(str(large)) == seen, "the same each time"


def test_places_are_all_over_the_files(large: Path) -> None:
    sample = RowSample(locate(str(large)).files)
    rows = [each for each in sample if isinstance(each, Record)]
    by_file = {file.uri: sum(each.place.startswith(file.uri) for each in rows) for file in sample.files}
    assert min(by_file.values()) > 0.02 * len(rows)
    assert rows[0].place in (f"{sample.files[0].uri}:1", f"{sample.files[0].uri}:2", f"{sample.files[0].uri}:row 1")
    assert len({str(each.values) for each in rows}) == len(rows), "no row twice"
    assert sample.places == sampling.PLACES


def test_a_bad_row_in_the_middle_is_named_by_its_byte(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(lines([each]) + '{"prompt": "no end\n' for each in all_rows()[:20_000]))
    seen = inspect(str(path))
    assert seen.bad == pytest.approx(seen.samples, rel=0.02)
    places = [each.place for each in RowSample(locate(str(path)).files) if isinstance(each, BadRow) and ":byte " in each.place]
    offsets = [int(place.rpartition(" ")[2]) for place in places]
    content = path.read_bytes()
    assert offsets
    assert all(content[offset:].startswith(b'{"prompt": "no end\n') for offset in offsets)


def test_empty_rows_and_repetitions_are_counted(tmp_path: Path) -> None:
    rows = [{"prompt": "", "completion": " "} if number % 10 == 0 else row(number // 2) for number in range(1_000)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    found = inspect(str(tmp_path / "a.jsonl"))
    assert (found.samples, found.bad, found.empty) == (900, 100, 100)
    assert found.duplicate_fraction == found.most_duplicates == pytest.approx(400 / 900)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5])
def test_the_bound_of_repetitions_holds(share: float) -> None:
    """Pairs of equal rows, sampled at random: the bound is above the truth, and not far where there are many."""
    rows = 200_000
    repeated = int(rows * share)
    keys = [str(number % (rows - repeated)).encode() for number in range(rows)]
    bounds = []
    for seed in range(40):
        times: dict[bytes, int] = {}
        for key in random.Random(seed).sample(keys, 20_000):
            times[key] = times.get(key, 0) + 1
        bounds.append(most_duplicates(times, rows))
    assert sum(bound < share for bound in bounds) <= 3, "of 40, with 95 % confidence"
    assert max(bounds) <= share * 1.5 + 0.01


def test_bins_hold_every_length_once() -> None:
    lengths = [1, 2, 3, 4, 5, 6, 7, 8, 100, 1_000_000]
    bins = binned(lengths)
    assert sum(each.count for each in bins) == len(lengths)
    assert all(before.high == after.low for before, after in itertools.pairwise(bins))
    for length in lengths:
        assert sum(each.low <= length < each.high for each in bins) == 1
    assert Bin(8, 12, 1) in bins


def test_the_command_draws_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.jsonl").write_text(lines(all_rows()[:20_000]) + '{"prompt": "", "completion": ""}\n')
    target = tmp_path / "a.svg"
    assert main(["data", "inspect", str(tmp_path / "a.jsonl"), "--picture", str(target)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "from all of the files; about" in shown
    assert "tokens, at 4 characters each" in shown
    drawn = ElementTree.parse(target)
    words = " ".join(drawn.getroot().itertext())
    for expected in ("a sample of", "512:", "characters with loss", "duplicates", "bad rows", "of these, empty"):
        assert expected in words
    assert "http" not in target.read_text().replace("http://www.w3.org/2000/svg", "")
    assert main(["data", "inspect", str(tmp_path / "a.jsonl"), "--picture", "a.png"]) == 2
    assert "pictures are SVG files\nnext: name it a.svg" in capsys.readouterr().err
    assert main(["data", "inspect", str(tmp_path / "a.jsonl"), "--everything", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == 20_000


def test_a_picture_in_tokens_and_one_without_any_row(tmp_path: Path) -> None:
    from tuneyard.data.picture import picture

    (tmp_path / "a.jsonl").write_text(lines(all_rows()[:500]))
    tokenizer = tokenizer_of([], eos="<e>", chat_template="")
    found = inspect(str(tmp_path / "a.jsonl"), tokenizer=tokenizer)
    assert sum(each.count for each in found.token_bins) == 500
    assert "length in tokens" in picture(found)
    (tmp_path / "b.jsonl").write_text('{"n": 1}\n')
    assert "no lengths: the format is unknown" in picture(inspect(str(tmp_path / "b.jsonl")))
