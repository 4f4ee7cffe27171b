"""`tuneyard plan FILE --explain-parallel`, as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.cli.test_plan import JOB, LLAMA_8B

from tuneyard.cli import main

ODD = {"model_type": "gpt2", "n_embd": 63, "n_layer": 2, "n_head": 3, "n_inner": 127, "vocab_size": 387}


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(LLAMA_8B | {"num_hidden_layers": 2}))
    path = tmp_path / "job.yaml"
    path.write_text(JOB.replace("steps: 1000", "steps: 1000\n      strategy: {tensorParallel: 2}"))
    return path


def test_rows_say_what_is_cut_and_why(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(job), "--explain-parallel", "-o", "json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}

    assert sum(row["share"] for row in rows.values()) == pytest.approx(1.0)
    assert {row["degree"] for row in rows.values()} == {2}
    down = rows["model.layers.*.mlp.down_proj"]
    assert (down["task"], down["style"], down["cut"], down["parameters"]) == ("train", "rowwise", True, 2 * 4096 * 14336)
    assert down["why"].startswith("rule 1: after the columns of model.layers.*.mlp.gate_proj")
    assert rows["model.norm"]["cut"] is False


def test_a_table_for_another_degree_than_that_of_the_file(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--explain-parallel", "3", str(job)]) == 0
    shown = capsys.readouterr().out

    assert shown.startswith("train: each of 3 ranks holds 1/3 of")
    assert "model.layers.*.self_attn.q_proj   " in shown
    assert "colwise_gather_output" in shown


@pytest.mark.parametrize(
    ("config", "strategy", "said"),
    [
        (LLAMA_8B, "auto", "no train task of the file has a tensorParallel above 1"),
        (ODD, "{tensorParallel: 2}", "2 ranks shard nothing of GPT2LMHeadModel"),
        ({**LLAMA_8B, "model_type": "llamas"}, "{tensorParallel: 2}", "a model of type llamas has no code in transformers"),
    ],
)
def test_what_cannot_be_explained_is_bad_input(
    config: dict[str, object], strategy: str, said: str, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (job.parent / "model" / "config.json").write_text(json.dumps(config))
    job.write_text(JOB.replace("steps: 1000", f"steps: 1000\n      strategy: {strategy}"))

    assert main(["plan", str(job), "--explain-parallel"]) == 2
    assert said in capsys.readouterr().err


def test_a_program_is_not_run_to_explain_it(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = "program: line:Line\n      strategy: {tensorParallel: 2}"
    job.write_text(JOB.partition("  - name: judge")[0].replace("model: {name: ./model}", program))
    (job.parent / "line.py").write_text("class Line:\n    pass\n")

    assert main(["plan", str(job), "--explain-parallel"]) == 2
    said = capsys.readouterr().err
    assert "task train trains a program: plan does not run its code" in said
    assert "another task makes it" not in said
