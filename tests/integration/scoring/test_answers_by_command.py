"""Each form of an answer in one job of the `tuneyard` command; the engine is a real HTTP server that says what its model is named after."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from tests.servers.openai_server import Fault, OpenAIServer, completion, prompt_of

ROWS = 40
TUNEYARD = str(Path(sys.executable).with_name("tuneyard"))
SAYS = {
    "last": "First I guess it is {wrong}. No: it is {right}.",
    "first": "The answer is {right}. It is not {wrong}.",
    "boxed": "So $\\boxed{{ {right} }}$.",
    "number": "That makes $ {right},000.00, I think.",
    "choice": "A and B are wrong, so the answer is ({letter}).",
    "json": 'Here you are:\n```json\n{{"result": [{{"value": {right}}}]}}\n```',
    "lenient": "The   {right}.",
    "drawn": "it is {right}",
}
ANSWERS: dict[str, dict[str, Any]] = {
    "last": {"answer": {"last": r"it is (\d+)"}},
    "first": {"answer": {"first": r"is (\d+)"}},
    "boxed": {"answer": "boxed"},
    "number": {"answer": "number"},
    "choice": {"answer": "choice"},
    "json": {"answer": {"json": "result[0].value"}},
    "lenient": {"ignore": ["case", "punctuation", "articles", "whitespace"]},
    "drawn": {
        "answer": "number",
        "generation": {"samples": 3, "temperature": 1, "seed": 1},
        "metrics": ["exact_match", "pass_at_k"],
        "passAt": {"k": 2},
    },
}
REFERENCE = {"number": "thousands", "choice": "letter"}


def replies(body: dict[str, Any], _: int) -> Fault:
    """Row 7 says nothing of use, row 8 something wrong."""
    number = int(prompt_of(body).split()[-1])
    said = number + 100 if number == 8 else number
    letter = "ABCD"[said % 4 if number != 8 else (number + 1) % 4]
    text = "I cannot say." if number == 7 else SAYS[body["model"]].format(right=said, wrong=number + 50, letter=letter)
    return Fault(200, json.dumps(completion(body, text)))


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("answers")
    rows = [{"prompt": f"row {n}", "answer": str(n), "thousands": f"{n},000", "letter": "ABCD"[n % 4]} for n in range(1, ROWS + 1)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with OpenAIServer(replies) as server:
        tasks = [
            {
                "name": name,
                "score": {
                    "data": {"source": "rows.jsonl", "reference": REFERENCE.get(name, "answer")},
                    "engine": {"endpoint": {"url": server.url, "model": name, "atOnce": 16}},
                    "metrics": ["exact_match", "token_f1"],
                    "rowsPerPart": 16,
                    **answer,
                },
            }
            for name, answer in ANSWERS.items()
        ]
        job = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "answers"}, "spec": {"tasks": tasks}}
        (folder / "job.yaml").write_text(yaml.safe_dump(job))
        ran = subprocess.run(
            [TUNEYARD, "run", str(folder / "job.yaml"), "--out", str(folder / "out")],
            capture_output=True,
            text=True,
            env={**os.environ, "TUNEYARD_HISTORY": "off"},
            timeout=600,
        )
    assert ran.returncode == 0, ran.stderr
    (folder / "out" / "said").write_text(ran.stdout + ran.stderr)
    return folder / "out"


@pytest.mark.parametrize("name", ANSWERS)
def test_the_answer_is_cut_out_compared_and_counted(out: Path, name: str) -> None:
    rows = pq.read_table(out / name / "parts").to_pylist()
    result = json.loads((out / name / "metrics.json").read_text())

    assert len(rows) == ROWS
    assert {row["prompt"] for row in rows if row["exact_match"] != 1.0} == {"row 7", "row 8"}
    assert result["metrics"]["exact_match"] == pytest.approx((ROWS - 2) / ROWS)
    if "answer" in ANSWERS[name]:
        assert [row["prompt"] for row in rows if row["extracted"] is None] == ["row 7"]
        assert (result["unanswered"], result["errors"]) == (1, 0)


def test_each_row_has_its_samples_once(out: Path) -> None:
    rows = pq.read_table(out / "drawn" / "parts").to_pylist()
    result = json.loads((out / "drawn" / "metrics.json").read_text())

    assert [row["samples"] for row in rows] == [[row["output"]] * 3 for row in rows]
    assert result["metrics"]["pass_at_k"] == pytest.approx((ROWS - 2) / ROWS)


def test_people_are_told_of_rows_without_an_answer_and_see_answers_beside_texts(out: Path) -> None:
    page = (out / "report.html").read_text()

    assert "no answer in 1 of 40 rows" in (out / "said").read_text()
    assert "the answer in it" in page
    assert "outputs without an answer" in page


def test_tasks_are_compared_only_by_metrics_that_cut_alike(out: Path) -> None:
    compared = [
        sorted(path.name for path in (out / name / "against").glob("*.json")) for name in ANSWERS if (out / name / "against").exists()
    ]

    assert not any(compared), "each task cuts its answers in its own way"
