"""Two models, a judge of both, and a metric of the user's own in one job of the `tuneyard` command, whose engine is a real HTTP server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from tests.integration.runtime.conftest import tuneyard_here
from tests.servers.openai_server import Fault, OpenAIServer, completion, prompt_of

ROWS, SAMPLE = 400, 120
TUNEYARD = str(Path(sys.executable).with_name("tuneyard"))
METRIC = """
from words import count

def words(output, references, row):
    return count(output) / row["weight"]
"""


def replies(body: dict[str, Any], _: int) -> Fault:
    """`base` is right in half of the rows, `tuned` in all. The judge says nonsense of every tenth row at first, and of row 30 always."""
    prompt = prompt_of(body)
    return Fault(200, json.dumps(completion(body, _judge(prompt) if body["model"] == "judge" else _answer(body["model"], prompt))))


def _answer(model: str, prompt: str) -> str:
    number = int(prompt.split()[-1])
    if model == "base" and number % 2 and number % 3:
        return f"Answer {number}"  # as right to the judge, but another text
    return f"answer {number}" if model == "tuned" or number % 2 else "I do not know"


def _pair(prompt: str) -> str:
    """Prefers what is right. Of two right answers it prefers the first, but for rows whose number 5 divides, which are ties; it says
    nonsense of every tenth row at first."""
    found = re.search(r"<question>\nrow (\d+)\n", prompt)
    assert found is not None
    number, strict = int(found[1]), prompt.endswith("No other words, no explanation.")
    if number % 10 == 0 and not strict:
        return "Hm: A or B?"
    first, second = ("I do not know" not in text for text in re.findall(r"<answer-.>\n(.*)\n</answer-.>", prompt))
    verdict = "tie" if first == second and number % 5 == 0 else "A" if first else "B"
    return verdict if strict else f"Reasons.\nVerdict: {verdict}"


def _judge(prompt: str) -> str:
    if "<answer-a>" in prompt:
        return _pair(prompt)
    found = re.search(r"<question>\nrow (\d+)\n", prompt)
    assert found is not None
    number, strict = int(found[1]), prompt.endswith("No words, no explanation.")
    if number % 10 == 0 and (number % 30 == 0 or not strict):
        return "What a question."
    score = 2 if "I do not know" in prompt else 5
    return str(score) if strict else f"Reasons.\nScore: {score}"


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compared")
    rows = [{"prompt": f"row {row}", "answer": f"answer {row}", "weight": 2.0} for row in range(ROWS)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "my_metrics.py").write_text(METRIC)
    (folder / "words.py").write_text("def count(text):\n    return len(text.split())\n")
    with OpenAIServer(replies) as server:

        def engine(model: str) -> dict[str, Any]:
            return {"endpoint": {"url": server.url, "model": model, "atOnce": 16}}

        def answering(model: str) -> dict[str, Any]:
            data = {"source": "rows.jsonl", "reference": "answer", "sample": SAMPLE, "sampleSeed": 5}
            own = {"metrics": ["exact_match", "chrf"], "ownMetrics": ["my_metrics:words:lower"]}
            return {"name": model, "score": {"data": data, "engine": engine(model), "rowsPerPart": 32, **own}}

        def judging(model: str) -> dict[str, Any]:
            own = {"judge": {"rubric": "Is it right?"}, "maxErrorFraction": 0.2, "rowsPerPart": 50}
            return {"name": f"judge-{model}", "score": {"data": {"from": model, "reference": "answer"}, "engine": engine("judge"), **own}}

        pair: dict[str, Any] = {"judge": {"rubric": "Is it right?", "against": {"from": "base"}}, "rowsPerPart": 50}
        pair |= {"data": {"from": "tuned", "reference": "answer"}, "engine": engine("judge")}
        tasks = [answering("base"), answering("tuned"), judging("base"), judging("tuned"), {"name": "pair", "score": pair}]
        job = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "compared"}, "spec": {"tasks": tasks}}
        (folder / "job.yaml").write_text(yaml.safe_dump(job))
        ran = subprocess.run(
            [TUNEYARD, "run", str(folder / "job.yaml"), "--out", str(folder / "out")],
            capture_output=True,
            text=True,
            env={**os.environ, "TUNEYARD_HISTORY": "off"},
            timeout=600,
        )
        assert ran.returncode == 0, ran.stderr
        (folder / "out" / "stdout").write_text(ran.stdout)
        (folder / "out" / "asked.json").write_text(json.dumps([prompt_of(body) for body in server.asked]))
    return folder / "out"


def report(out: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((out / "report.json").read_text())
    return content


def rows(out: Path, task: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(out / task / "parts").to_pylist()
    return found


def test_both_models_and_both_judges_answer_the_same_sample(out: Path) -> None:
    numbers = {task: [row["row" if task in ("base", "tuned") else "input_row"] for row in rows(out, task)] for task in report(out)["tasks"]}

    assert len(numbers["base"]) == SAMPLE
    assert all(each == numbers["base"] for each in numbers.values())


def test_the_own_metric_is_computed_in_the_workers_by_its_modules(out: Path) -> None:
    assert {row["words"] for row in rows(out, "tuned")} == {1.0}
    assert report(out)["tasks"]["tuned"]["metrics"]["words"] == 1.0


def test_a_judge_is_asked_twice_about_rows_that_it_says_nonsense_of_and_no_more(out: Path) -> None:
    judged = rows(out, "judge-tuned")
    tenth = [row for row in judged if int(row["prompt"].split()[1]) % 10 == 0]
    never = [row for row in tenth if int(row["prompt"].split()[1]) % 30 == 0]
    task = report(out)["tasks"]["judge-tuned"]

    assert task["details"]["judge_retries"] == len(tenth)
    assert {row["error"] for row in never} == {"the judge gave no score from 1 to 5, when asked twice"}
    assert task["errors"] == len(never) > 0
    assert task["metrics"]["judge"] == 5.0
    assert task["metrics"]["judged"] == pytest.approx(1 - len(never) / SAMPLE)
    assert (
        max(count for prompt, count in Counter(json.loads((out / "asked.json").read_text())).items() if "<answer-a>" not in prompt) <= 2
    )  # a row of base that is right has the prompt of tuned's


def test_models_and_judges_are_compared_in_report_terminal_and_page(out: Path) -> None:
    whole = report(out)
    by_pair = {(each["task"], each["against"]): each for each in whole["comparisons"]}
    assert set(by_pair) == {("tuned", "base"), ("judge-tuned", "judge-base")}
    figures = {each["figure"]: each for each in by_pair["tuned", "base"]["figures"]}
    assert [(name, each["real"], each["better"]) for name, each in figures.items()] == [
        ("exact_match", True, True),
        ("chrf", True, True),
        ("words", True, True),
    ]
    (judge,) = by_pair["judge-tuned", "judge-base"]["figures"]
    assert (judge["figure"], judge["real"], judge["better"]) == ("judge", True, True)
    assert judge["losses"] == 0
    assert "tuned against base, row by row: exact_match +0." in (out / "stdout").read_text()
    assert "judge-tuned against judge-base" in (out / "report.html").read_text()


def test_the_command_finds_what_the_job_found(out: Path) -> None:
    ran = tuneyard_here("compare", out / "base", out / "tuned", "-o", "json")

    assert json.loads(ran.stdout) == [report(out)["comparisons"][0]]


def test_a_judge_of_two_answers_sees_both_orders_and_its_bias_for_the_first_is_counted(out: Path) -> None:
    task, found = report(out)["tasks"]["pair"], rows(out, "pair")
    numbers = [int(row["prompt"].split()[1]) for row in found]
    wins = sum(number % 2 == 0 for number in numbers)
    ties = [number for number in numbers if number % 2]
    same = [number for number in ties if number % 3 == 0]
    flipped = [number for number in ties if number % 5 and number % 3]
    pairwise = task["details"]["pairwise"]

    assert (pairwise["wins"], pairwise["ties"], pairwise["losses"]) == (wins, len(ties), 0)
    assert pairwise["identical"] == len(same) > 0
    assert pairwise["order_dependent"] == len(flipped) > 0
    assert task["metrics"]["win_rate"] == pytest.approx((wins + len(ties) / 2) / SAMPLE)
    assert task["metrics"]["order_dependent"] == pytest.approx(len(flipped) / (SAMPLE - len(same)))
    low, high = task["intervals"]["win_rate"]
    assert low < task["metrics"]["win_rate"] < high
    assert pairwise["first_preferred"] - pairwise["second_preferred"] == pytest.approx(len(flipped) / (SAMPLE - len(same)))
    warned = f"verdicts on {len(flipped)} of {SAMPLE - len(same)} pairs of answers change with their order"
    assert warned in " ".join(task["warnings"])
    assert warned in (out / "report.html").read_text()
    assert pairwise["by_length"]["shorter"] == {"rows": wins, "win_rate": 1.0}
    assert task["details"]["judge_retries"] == sum(number % 10 == 0 for number in numbers)
    assert {row["win_rate"] for row in found} == {0.5, 1.0}
    assert task["samples"][0]["answer"].startswith("answer")
    assert task["samples"][0]["against"]
    for said in ((out / "stdout").read_text(), tuneyard_here("compare", out / "pair").stdout):
        assert f"won, tied, lost {wins} / {len(ties)} / 0" in said.replace("lost:", "lost")
    assert "the other answer" in (out / "report.html").read_text()
