"""YAML examples are what `tuneyard validate` accepts; Python snippets run, and so does every command that needs no cluster."""

from __future__ import annotations

import ast
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.unit.docs.commands import Line, lines_of
from tests.unit.docs.fragments import complaint
from tests.unit.docs.markdown import Block, manual
from tests.unit.docs.reader import make_reader, substituted

from tuneyard.cli.entry import main
from tuneyard.tracking import History
from tuneyard.tracking.hub_rows import JobRows, key_of

COMPILED_ONLY = {
    "docs/test-clusters.md": "needs root and Kubernetes",
    "docs/own-data.md": "needs a model that was trained",
    "docs/serving.md": "needs a server with a model that was trained",
}
"""Pages whose Python is compiled and not run, each with the reason."""
RUN = {"validate", "simulate", "data", "history"}
"""Commands that run here in a second where the reader has their files. So does `plan` with `--sku`: without, it measures this machine."""
BLOCKS = [block for page in manual() for block in page.blocks]
PYTHON = [block for block in BLOCKS if block.language == "python"]
YAML = [block for block in BLOCKS if block.language == "yaml"]


def runs_here(line: Line) -> bool:
    if line.partial or line.program != "tuneyard" or line.argv[1:2] == ("--help",) or "--hub" in line.argv:
        return False
    with_sku = line.argv[1] == "plan" and "--sku" in line.argv
    files = [word for word in line.argv[2:] if word.endswith((".yaml", ".jsonl", ".csv", ".gz"))]
    known = {"job.yaml", "clusters.yaml", "chats.jsonl", "jobs.csv", "benchmarks/data/training_runs.csv.gz"}
    return (line.argv[1] in RUN or with_sku) and set(files) <= known


COMMANDS = {" ".join(line.argv): line for page in manual() for line in lines_of(page) if runs_here(line)}


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_reader(tmp_path_factory.mktemp("reader"))
    history = History.open(f"sqlite:///{folder}/home/tuneyard/history.db")
    history.record([past_job("support-bot"), past_job("support-bot-r32")], datetime.now(UTC))
    history.close()
    return folder


def past_job(name: str) -> JobRows:
    """A job of the pages that has run before."""
    row = {"id": key_of(name), "name": name, "namespace": "default", "team": "default", "status": "succeeded", "message": "", "output": ""}
    return JobRows({**row, "spec": {}, "started_at": datetime.now(UTC), "ended_at": None, "version": 0})


@pytest.fixture
def reader(staged: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The reader's folder, as the working folder of a machine of their own."""
    monkeypatch.chdir(staged)
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "TUNEYARD_CACHE"):
        monkeypatch.setenv(name, str(staged / "home"))
    monkeypatch.delenv("TUNEYARD_HISTORY", raising=False)
    monkeypatch.delenv("TUNEYARD_HISTORY_URL", raising=False)
    return staged


@pytest.mark.parametrize("block", YAML, ids=lambda block: block.where)
def test_yaml_is_accepted(block: Block, tmp_path: Path) -> None:
    assert complaint(block.text, tmp_path) is None


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.where)
def test_python_runs(block: Block, reader: Path) -> None:
    code = compile(substituted(block.text, reader), block.where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if block.page not in COMPILED_ONLY:
        exec(code, {"__name__": "snippet"})


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_needs_no_cluster_runs(command: str, reader: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = [substituted(word, reader) for word in COMMANDS[command].argv[1:]]
    assert main(argv) == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("train: {model: {nmae: x}}", "nmae"),
        ("- name: a\n  train: {batch: {global: 0}}", "at least 1"),
        ("data: {source: a}\ndata: {source: b}", "data"),
        ("kind: Team\nspec: {qouta: {}}", "qouta"),
        ("anything: 1", "no kind, task or group"),
        ("skus: [{name: cpu}]", "nodes"),
    ],
)
def test_yaml_that_is_wrong_is_found(text: str, what: str, tmp_path: Path) -> None:
    assert what in str(complaint(text, tmp_path))
