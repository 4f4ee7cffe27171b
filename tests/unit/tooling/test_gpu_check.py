"""The check of a GPU: its sections survive what happens to one of them, its report names what misses, and its page has its predictions."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from benchmarks.gpu import results, runner
from benchmarks.gpu.cases import CASES, LENGTH, Case, cases_of, last_shapes
from benchmarks.gpu.predictions import predicted, table_of
from benchmarks.gpu.report import misses_of, report, report_trials
from benchmarks.gpu.runner import COMPILE, SECOND, SECTIONS, Runner, Section
from tests.builders.models import train_request, train_task, why_refused
from tests.unit.docs.markdown import ROOT

from tuneyard.planning import Plan

FIRST = cases_of("train-1b")[0]


def row_of(name: str, *, speed: float = 1.0, memory: float = 1.0, losses: tuple[float, ...] = (11.8, 11.0)) -> dict[str, Any]:
    """A result whose ratios to the prediction for an H100 are these."""
    case = next(case for case in CASES if case.name == name)
    value = predicted(case, "h100-80gb")
    return {
        "section": case.section,
        "case": name,
        "tokens_per_s": speed * value.tokens_per_s,
        "mfu": value.mfu,
        "allocated_gb": memory * value.allocated_gb,
        "reserved_gb": 60.0,
        "host_gb": 1.0,
        "losses": list(losses),
        "predicted": value.to_dict(),
    }


@pytest.mark.parametrize("sku", ["h100-80gb", "h200-141gb"])
def test_the_page_has_the_predictions_of_this_tree(sku: str) -> None:
    page = (ROOT / "docs" / "gpu-check.md").read_text()
    assert table_of(sku) in page, f"write into docs/gpu-check.md, with the date: python benchmarks/gpu_check.py --predict {sku}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_planner_has_every_case_on_an_h100(case: Case, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(case.config))
    plan = Plan(sku="h100-80gb", nvme_path=str(tmp_path), **case.plan_fields)
    data = {"source": "text.jsonl", "maxLength": LENGTH, "pack": True}
    task = train_task(tmp_path, tmp_path, method=case.method_fields, steps=case.steps, data=data, batch={"global": plan.global_batch})

    assert why_refused(train_request(tmp_path, task, plan, refused=None)) == ""
    assert predicted(case, "h100-80gb").fits


def test_the_page_has_every_section_and_trial() -> None:
    page = (ROOT / "docs" / "gpu-check.md").read_text()
    limits = [f"| `{section.name}` | {section.limit_s} |" for section in (*SECTIONS, COMPILE)]
    assert [line for line in limits if line not in page] == []
    assert [section.name for section in SECOND if f"`{section.name}`" not in page] == []
    assert {case.section for case in CASES} <= {section.name for section in SECTIONS}


def test_a_model_is_kept_until_its_last_section() -> None:
    assert (last_shapes("train-1b"), last_shapes("train-8b"), last_shapes("offload")) == (set(), {"8B"}, {"1B", "3B"})


def test_what_is_within_its_tolerance_is_no_miss() -> None:
    rows = [row_of(case.name) for case in CASES]
    assert "Nothing misses its tolerance." in report(rows)


def test_a_miss_is_named_with_what_it_points_at() -> None:
    slow, full = misses_of(FIRST, row_of(FIRST.name, speed=0.5, memory=1.2))
    assert slow == f"speed is 0.50 of the predicted one (0.80 to 1.20): {FIRST.slow}"
    assert full == "memory is 1.20 of the predicted one (0.94 to 1.06)"


def test_a_faster_case_is_a_miss_without_a_reason() -> None:
    assert misses_of(FIRST, row_of(FIRST.name, speed=1.5)) == ["speed is 1.50 of the predicted one (0.80 to 1.20)"]


def test_a_case_without_a_result_and_one_with_an_error_are_misses() -> None:
    rows = [row_of(case.name) for case in CASES[2:]]
    rows.append({"section": "train-1b", "case": CASES[0].name, "error": "JobFailed: out of memory"})
    text = report(rows)
    assert f"- {CASES[0].name}: JobFailed: out of memory" in text
    assert f"- {CASES[1].name}: no result" in text


def test_layouts_of_the_same_model_that_differ_in_losses_are_named() -> None:
    rows = [row_of(case.name, losses=(11.8, 10.0) if case.name == "1B full, ZeRO 3" else (11.8, 11.0)) for case in CASES]
    assert "- 1B full, ZeRO 3: its losses are not those of 1B full" in report(rows)


def test_losses_that_are_no_numbers_are_named() -> None:
    rows = [row_of(case.name, losses=(float("nan"), 1.0) if case.name == "1B full, ZeRO 2" else (11.8, 11.0)) for case in CASES]
    assert "- 1B full, ZeRO 2: its losses are not those of 1B full" in report(rows)


def test_a_trial_is_reported_beside_what_was_expected() -> None:
    before, after = row_of(FIRST.name), row_of(FIRST.name, speed=1.1)
    text = report_trials([{"section": "x", "trial": "x", "expected": "+10 %", "before": before, "after": after}])
    assert "| x | +10 % | 37,024 | 40,726 | +10.0% |" in text


# The runner, over sections that are this script.

SCRIPT = """
import json, os, sys, time
section, file, behavior = sys.argv[3], sys.argv[1], json.loads(sys.argv[2])
done = {json.loads(line).get("case") for line in open(file)} if os.path.exists(file) else set()
for case, does in behavior[section]:
    if case in done:
        continue
    if does == "dies":
        os.kill(os.getpid(), 9)
    if does == "hangs":
        print("hanging", flush=True)
        time.sleep(600)
    with open(file, "a") as out:
        out.write(json.dumps({"section": section, "case": case, "loss": 1}) + "\\n")
    if does == "fresh":
        sys.exit(3)
"""


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for module in (results, runner):
        monkeypatch.setattr(module, "OUT", tmp_path)
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results.jsonl")
    monkeypatch.setattr(runner, "_LEAST_S", 0.1)
    return tmp_path


def run(out: Path, monkeypatch: pytest.MonkeyPatch, *, budget_s: float = 120, **behavior: list[tuple[str, str]]) -> list[Any]:
    """The rows of a check whose sections have these cases. A section with a case that hangs has a limit of two seconds."""
    cases = {name: [replace(FIRST, section=name, name=case) for case, _ in found] for name, found in behavior.items()}
    monkeypatch.setattr(runner, "cases_of", lambda name: cases.get(name, []))
    command = [sys.executable, "-c", SCRIPT, str(out / "results.jsonl"), json.dumps(behavior)]
    limits = {name: 2 if "hangs" in dict(found).values() else 60 for name, found in behavior.items()}
    Runner(command, budget_s).run(tuple(Section(name, limit) for name, limit in limits.items()))
    return results.told()


def outcomes(rows: list[Any]) -> dict[str, str]:
    return {row["case"]: row.get("error", "ran") for row in rows if "case" in row}


def test_a_case_that_kills_its_process_costs_no_other_case(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = run(out, monkeypatch, one=[("a", "runs"), ("b", "dies"), ("c", "runs")], two=[("d", "runs")])
    assert outcomes(rows) == {"a": "ran", "b": "its process ended by signal 9", "c": "ran", "d": "ran"}


def test_a_section_asks_for_a_fresh_process(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = run(out, monkeypatch, one=[("a", "fresh"), ("b", "fresh"), ("c", "runs")])
    assert outcomes(rows) == {"a": "ran", "b": "ran", "c": "ran"}
    assert [row["ended"] for row in rows if "ended" in row] == ["ended with 0"]


def test_a_section_that_hangs_ends_at_its_limit_and_the_next_one_runs(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = run(out, monkeypatch, one=[("a", "hangs"), ("b", "runs")], two=[("c", "runs")])
    assert outcomes(rows) == {"a": "its process was over its limit", "c": "ran"}


def test_without_time_left_a_section_says_so(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = run(out, monkeypatch, budget_s=0.0, one=[("a", "runs")])
    assert [row["ended"] for row in rows] == ["no time was left"]


def test_what_a_section_has_started_ends_with_it() -> None:
    """Also what has a process group of its own, as each compiler of ninja has."""
    child = "import subprocess, time; print(subprocess.Popen(['sleep', '600'], process_group=0).pid, flush=True); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout
    grandchild = psutil.Process(int(process.stdout.readline()))
    runner.end(process)
    assert process.wait(timeout=60) == -signal.SIGKILL
    grandchild.wait(timeout=60)
