"""Metrics by the user's own functions: loaded, computed, added up, compared; and every way in which they can be wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError
from tests.unit.scoring.scored_by_hand import answer_all, request, write_rows

from tuneyard.api import BadInput, ScoreTask
from tuneyard.metrics import METRICS
from tuneyard.scoring import ScoreResult
from tuneyard.scoring.own_metrics import OwnMetrics
from tuneyard.scoring.paired import compare
from tuneyard.scoring.parts import added_names
from tuneyard.scoring.rows import ScoredRow
from tuneyard.tracking.tables import CHARGED

CODE = """
import math
import os
import sys
import time
from fractions import Fraction

def rate(output, references, row):
    return len(output) / row["n"]

def exact(output, references, row):
    return output in references

def length(output, references, row):
    return Fraction(len(output))

def text(output, references, row):
    return "good"

def nothing(output, references, row):
    return None

def nan(output, references, row):
    return float("nan")

def leaves(output, references, row):
    sys.exit(3)

def spoils(output, references, row):
    references.clear()
    row.clear()
    return 1

def spoils_deeply(output, references, row):
    row["tags"].clear()
    return 1

def tags(output, references, row):
    return len(row["tags"])

def ends(output, references, row):
    if row["n"] == 1:
        os._exit(7)
    return 1

def ends_always(output, references, row):
    os.kill(os.getpid(), 9)

def hangs(output, references, row):
    while row["n"] == 2:
        time.sleep(0.01)
    return 1

def prints(output, references, row):
    for _ in range(64):
        print("x" * (1 << 20))
    return len(sys.stdin.read())

def huge(output, references, row):
    return 10**400

def array(output, references, row):
    import numpy
    return numpy.ones(3)

def scalar(output, references, row):
    import numpy
    return numpy.bool_(output in references)

def torches(output, references, row):
    import torch
    return torch.tensor(0.5)

def torch_truth(output, references, row):
    import torch
    return torch.tensor(output in references)

def one(output, references, row):
    return 1

def infinite(output, references, row):
    return -math.inf

def screams(output, references, row):
    raise ValueError("x" * 100_000_000)

def two(output, references):
    return 1

constant = 3
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my_metrics.py").write_text(CODE)
    (tmp_path / "broken_metrics.py").write_text("import nothing_of_this_name\n")
    (tmp_path / "ending_metrics.py").write_text("import os\nos._exit(5)\n")
    return tmp_path


def scored(folder: Path, name: str, says: dict[int, str], *own: str) -> ScoreResult:
    rows = [{"prompt": f"q{i}", "answer": "yes", "n": i, "tags": ["a", "b"]} for i in range(4)]
    asked = request(folder, name, write_rows(folder / "rows.jsonl", rows), ownMetrics=own, metricsDir=str(folder))
    return answer_all(asked, lambda row: says.get(row, "yes"))


def table(folder: Path, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(folder / name / "parts").to_pylist()
    return found


def test_a_share_of_truth_values_has_wilsons_interval_and_a_mean_of_numbers_has_not(folder: Path) -> None:
    result = scored(
        folder, "out", dict.fromkeys(range(4), "no"), *(f"my_metrics:{name}" for name in ("exact", "scalar", "torch_truth", "one"))
    )

    assert (result.metrics["exact"], result.metrics["one"]) == (0, 1)
    wilson = result.intervals["exact_match"]
    assert wilson == (0, pytest.approx(0.49, abs=0.005))
    assert {name: interval for name, interval in result.intervals.items() if name != "exact_match"} == dict.fromkeys(
        ("exact", "scalar", "torch_truth"), wilson
    )


def test_a_function_is_a_column_a_figure_and_an_error_of_the_rows_where_it_fails(folder: Path) -> None:
    result = scored(folder, "out", {3: "no"}, "my_metrics:rate", "my_metrics:exact", "my_metrics:length:lower")

    rows = table(folder, "out")
    assert [row["rate"] for row in rows] == [None, 3.0, 1.5, pytest.approx(2 / 3)]
    assert rows[0]["error"] == "rate cannot be computed: ZeroDivisionError: division by zero"
    assert result.errors == 1
    assert result.metrics == {
        "exact_match": pytest.approx(2 / 3),
        "rate": pytest.approx((3 + 1.5 + 2 / 3) / 3),
        "exact": pytest.approx(2 / 3),
        "length": pytest.approx(8 / 3),
    }


def test_two_models_are_compared_by_it_in_its_direction(folder: Path) -> None:
    scored(folder, "base", {}, "my_metrics:length:lower")
    scored(folder, "tuned", {1: "no", 2: "a long one"}, "my_metrics:length:lower")

    found = compare(str(folder / "tuned"), str(folder / "base"), names=("tuned", "base")).figures[-1]

    assert (found.figure, found.wins, found.ties, found.losses, found.better) == ("length", 1, 2, 1, False)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("text", "it returned str, not a number"),
        ("nothing", "it returned NoneType, not a number"),
        ("nan", "it is nan"),
        ("leaves", "SystemExit: 3"),
        ("huge", "OverflowError: int too large to convert to float"),
        ("array", "it returned ndarray, not a number"),
        ("infinite", "it is -inf"),
        ("screams", f"ValueError: {'x' * 288}"),
    ],
)
def test_what_is_no_number_is_an_error_of_the_row(folder: Path, name: str, says: str) -> None:
    result = scored(folder, "out", {}, f"my_metrics:{name}")

    assert result.errors == 4
    assert {row["error"] for row in table(folder, "out")} == {f"{name} cannot be computed: {says}"}


def test_a_function_cannot_spoil_the_row(folder: Path) -> None:
    result = scored(folder, "out", {}, "my_metrics:spoils", "my_metrics:exact", "my_metrics:spoils_deeply", "my_metrics:tags")

    assert (result.metrics["exact"], result.metrics["tags"]) == (1.0, 2.0)
    assert [row["n"] for row in table(folder, "out")] == [0, 1, 2, 3]


def test_a_function_that_ends_its_process_is_an_error_of_its_row(folder: Path) -> None:
    result = scored(folder, "out", {}, "my_metrics:exact", "my_metrics:ends")

    assert result.errors == 1
    assert table(folder, "out")[1]["error"] == "ends cannot be computed: it ended its process (exit code 7)"
    assert [row["ends"] for row in table(folder, "out")] == [1.0, None, 1.0, 1.0]


def test_one_that_always_ends_its_process_fails_the_task_by_name(folder: Path) -> None:
    with pytest.raises(BadInput, match=r"own metric ends_always .* \(signal SIGKILL\), in row 2; 3 rows of one worker ended so"):
        scored(folder, "out", {}, "my_metrics:exact", "my_metrics:ends_always")


def test_a_function_that_hangs_is_an_error_of_its_row_and_ends(folder: Path) -> None:
    own = OwnMetrics(["my_metrics:hangs"], folder, call_limit_s=1.0)
    rows = [ScoredRow(n, output="yes") for n in range(4)]
    with pytest.raises(ValueError, match="hangs cannot be computed: it gave no value within 1 s"):
        own.measure(rows[2], {"n": 2})

    own.measure(rows[3], {"n": 3})
    own.close()

    assert rows[3].values == {"hangs": 1.0}
    assert not [child for child in psutil.Process().children() if "tuneyard.scoring.own_functions" in child.cmdline()]


def test_a_function_that_hangs_ends_with_its_worker(folder: Path) -> None:
    code = f"""
from pathlib import Path
from tuneyard.scoring.own_metrics import OwnMetrics
from tuneyard.scoring.rows import ScoredRow
own = OwnMetrics(["my_metrics:hangs"], Path({str(folder)!r}))
print("ready", flush=True)
own.measure(ScoredRow(2, output="yes"), {{"n": 2}})
"""
    worker = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert worker.stdout is not None
    assert worker.stdout.readline() == b"ready\n"
    (child,) = psutil.Process(worker.pid).children()

    worker.kill()
    worker.wait()

    child.wait(60)


def test_prints_are_passed_on_up_to_a_limit(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    result = scored(folder, "out", {}, "my_metrics:prints")

    assert result.metrics["prints"] == 0.0
    assert len(capfd.readouterr().err) < 3 << 20


def test_a_scalar_of_numpy_or_torch_is_a_number(folder: Path) -> None:
    result = scored(folder, "out", {3: "no"}, "my_metrics:scalar", "my_metrics:torches")

    assert (result.metrics["scalar"], result.metrics["torches"]) == (0.75, 0.5)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("my_metrics:rat", "has no function rat (did you mean rate?)"),
        ("my_metrics:constant", "has no function constant"),
        ("my_metrics:two", "does not take three arguments: too many positional arguments"),
        ("no_such_metrics:rate", "cannot be imported: ModuleNotFoundError"),
        ("ending_metrics:rate", "ended its process while it was imported (exit code 5)"),
        ("broken_metrics:rate", "No module named 'nothing_of_this_name'"),
    ],
)
def test_what_cannot_be_a_metric_is_refused_before_the_engine_is_loaded(folder: Path, name: str, says: str) -> None:
    with pytest.raises(BadInput) as refused:
        OwnMetrics([name], folder)

    assert says in refused.value.cause


@pytest.mark.parametrize(
    ("own", "says"),
    [
        (["rate"], "match pattern"),
        (["my_metrics.py:rate:higher"], "match pattern"),
        (["a:rate", "b:rate"], "two of ownMetrics are called rate"),
        (["a:exact_match"], "is a name of Tuneyard's"),
        (["a:latency_s"], "is a name of Tuneyard's"),
        (["a:cost"], "is a name of Tuneyard's"),
        ([f"a:f{i}" for i in range(17)], "at most 16"),
    ],
)
def test_names_that_cannot_work_are_refused(own: list[str], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        ScoreTask.model_validate({"model": {"name": "m"}, "data": {"source": "d"}, "ownMetrics": own})


@pytest.mark.parametrize("column", sorted({*added_names(list(METRICS)), CHARGED}))
def test_an_own_metric_takes_no_name_of_a_column_or_figure(column: str) -> None:
    with pytest.raises(ValidationError, match="is a name of Tuneyard's"):
        ScoreTask.model_validate({"model": {"name": "m"}, "data": {"source": "d"}, "ownMetrics": [f"a:{column}"]})


def test_a_folder_without_metrics_is_refused() -> None:
    with pytest.raises(ValidationError, match="metricsDir needs ownMetrics"):
        ScoreTask.model_validate({"model": {"name": "m"}, "data": {"source": "d"}, "metricsDir": "code"})
