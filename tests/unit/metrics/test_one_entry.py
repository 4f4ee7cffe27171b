"""An entry in the table is all that a metric takes: the one of docs/extending/metric.md is put into a copy of the package, and used.

A score task is run as engines' processes run it, by `OpenPart`, with answers that no engine gave; all else is the real thing.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import tuneyard

ROOT = Path(__file__).parents[3]
SPEC = """
apiVersion: tuneyard.dev/v1alpha1
kind: JobSpec
metadata: {name: invented}
spec:
  tasks:
  - name: judge
    score:
      model: {name: m}
      data: {source: rows.jsonl, reference: answer}
      metrics: [contains, exact_match]
"""
PROGRAM = """
import json, sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import tuneyard
from tuneyard.api import BadInput, load_jobspec
from tuneyard.api.docs import pages
from tuneyard.api.schema import crd
from tuneyard.cli.summary import print_summary
from tuneyard.data.control_tokens import NONE
from tuneyard.scoring import Measured, ScoreRequest, Sums, finish, prepare
from tuneyard.scoring.exchange import Answer
from tuneyard.scoring.open_part import OpenPart
from tuneyard.scoring.parts import commit
from tuneyard.storage import open_store
from tuneyard.tracking import Report
from tuneyard.tracking.report_page import render

assert Path(tuneyard.__file__).is_relative_to(Path.cwd()), tuneyard.__file__
task = load_jobspec(Path("job.yaml")).spec.tasks[0].score
prompts = SimpleNamespace(prompt=lambda text, **_: [1], tokens_of=len, opens_thoughts=lambda _: False, take_spelled=lambda: NONE)


def scored(name, answers):
    asked = ScoreRequest(job="j", name=name, task=task, model_uri="m", output=str(Path(name).absolute()), scratch=".")
    job = prepare(asked)
    rows = job.order.rows.read(0, len(answers))
    part = OpenPart(rows, task)
    for request in part.requests(prompts):
        index = request.key[1]
        part.take(index, Answer(request.key, latency_s=0.1, text=answers[index], finish_reason="stop"))
    done = part.finish()
    sums = Sums.of(done, job.order.columns.metrics)
    commit(open_store(asked.output), 0, job.order.columns.encode(rows, done, sums))
    result = finish(prepare(asked), [], Measured(wall_s=1.0, load_s=0.0, generation_s=0.0, deaths=0, stopped=False, settings=None))
    return {"kind": "score", **asdict(result)}


report = Report(job="j", status="Succeeded", tasks={"base": scored("base", ["no", "no"]), "tuned": scored("tuned", ["it is 4", "no"])})
print_summary(report)
Path("report.html").write_text(render(report))
Path("crd.json").write_text(json.dumps(crd("JobSpec")))
written = pages()
for name in ("metrics.md", "jobspec.md"):
    Path(name).write_text(written[name])
try:
    load_jobspec(Path("wrong.yaml"))
except BadInput as error:
    Path("wrong.txt").write_text(str(error))
"""


def entry() -> str:
    page = (ROOT / "docs" / "extending" / "metric.md").read_text()
    found = re.search(r"```python\n.*?\n\n(mean\(.*?\n\))\n```", page, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the package has one metric more, and where it was used. All but one file is linked."""
    folder = tmp_path_factory.mktemp("one_entry")
    package = Path(tuneyard.__file__).parent
    (folder / "tuneyard" / "metrics").mkdir(parents=True)
    for source in (*package.iterdir(), *(package / "metrics").iterdir()):
        if source.name not in ("metrics", "table.py", "__pycache__"):
            (folder / "tuneyard" / source.relative_to(package)).symlink_to(source)
    table = (package / "metrics" / "table.py").read_text()
    (folder / "tuneyard" / "metrics" / "table.py").write_text(table.replace("_ENTRIES = (\n", f"_ENTRIES = (\n{entry()},\n", 1))
    (folder / "job.yaml").write_text(SPEC)
    (folder / "wrong.yaml").write_text(SPEC.replace("contains", "contain"))
    (folder / "rows.jsonl").write_text('{"prompt": "2 + 2", "answer": ["4", "four"]}\n{"prompt": "2 + 3", "answer": "5"}\n')
    (folder / "m").mkdir()
    cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))  # which knows this machine's peaks
    environment = {"PYTHONPATH": str(folder), "PATH": "", "HOME": str(folder), "XDG_CACHE_HOME": cache}
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_validation_knows_its_name_and_suggests_it(used: Path) -> None:
    assert "did you mean contains" in (used / "wrong.txt").read_text()


def test_a_run_has_the_row_values_the_figure_and_its_interval(used: Path) -> None:
    result: dict[str, Any] = json.loads((used / "tuned" / "metrics.json").read_text())

    assert pq.read_table(used / "tuned" / "parts")["contains"].to_pylist() == [1.0, 0.0]
    assert result["metrics"] == {"contains": 0.5, "exact_match": 0.0}
    low, high = result["intervals"]["contains"]
    assert 0 < low < 0.5 < high < 1


def test_the_report_calls_it_by_its_title_and_says_what_is_better(used: Path) -> None:
    page = (used / "report.html").read_text()

    assert "<td>contains the reference</td>" in page
    assert re.search(r"contains the reference</td>.{0,300}better", page, re.DOTALL)


def test_pages_and_crds_have_it(used: Path) -> None:
    assert (
        "| `contains` | share of outputs that hold the reference, word for word | output, reference | `contains` |"
        in (used / "metrics.md").read_text()
    )
    assert "`contains`" in (used / "jobspec.md").read_text()
    assert '"contains"' in (used / "crd.json").read_text()
