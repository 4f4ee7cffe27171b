"""The arrows of a job's graph, from a recorded JobSpec."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tuneyard.console.upstream import upstream

JOB = """
spec:
  tasks:
  - {name: train, train: {model: {name: m}, data: {mix: [{source: a}, {from: clean}]}}, dependsOn: [clean]}
  - {name: clean, process: {command: [clean, --from, train]}}
  - {name: base, score: {model: {name: m}, data: {source: s}}}
  - {name: tuned, score: {model: {from: train}, data: {source: s}}}
  - {name: judge, score: {model: {name: m}, data: {from: tuned}, judge: {rubric: r, against: {from: base}}}}
  - {name: odd, score: {model: {from: elsewhere}}}
"""


def test_a_task_waits_for_those_whose_model_or_data_it_takes() -> None:
    assert upstream(yaml.safe_load(JOB)) == {
        "train": ["clean"],
        "clean": [],
        "base": [],
        "tuned": ["train"],
        "judge": ["tuned", "base"],
        "odd": [],
    }


@pytest.mark.parametrize("spec", [{}, {"spec": None}, {"spec": []}, {"spec": {"tasks": {}}}, {"spec": {"tasks": [None, {"name": ""}]}}])
def test_a_record_of_any_form_has_a_graph(spec: dict[str, Any]) -> None:
    assert upstream(spec) == {}
