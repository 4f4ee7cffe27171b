"""Options that take one word of a list refuse any other word, and name the list."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from tuneyard.cli import main
from tuneyard.cli.commands import COMMANDS, typer_app

JOB = """
apiVersion: tuneyard.dev/v1alpha1
kind: JobSpec
metadata: {name: small}
spec:
  tasks:
  - name: t
    train: {model: {name: meta-llama/Llama-3.2-1B}, data: {source: rows.jsonl}, steps: 1}
"""
CLOSED = {
    ("tune", "--searcher"): (["{job}"], "no-such", "reinforce"),
    ("plan", "--sweep"): (["{job}"], "no-such", "offload"),
    ("plan", "--sku"): (["{job}"], "no-such", "h100-80gb"),
    ("plan", "--price"): (["{job}"], "no-such=3", "SKU"),
    ("simulate", "--policy"): (["--trace", "{job}", "--clusters", "{job}"], "no-such", "fifo-first-fit"),
    ("usage", "--by"): (["--local"], "no-such", "month"),
    ("history list", "--status"): ([], "no-such", "succeeded"),
    ("schema json", "--kind"): ([], "no-such", "JobSpec"),
    ("data inspect", "--file-type"): (["{rows}"], "no-such", "parquet"),
    ("data inspect", "--columns"): (["{rows}"], "no-such=text", "prompt"),
    ("data inspect", "--roles"): (["{rows}"], "customer=no-such", "user"),
    ("init", "--columns"): (["--data", "{rows}"], "no-such=text", "prompt"),
    ("init", "--roles"): (["--data", "{rows}"], "customer=no-such", "user"),
}
"""Command and option: other arguments, a value that is not in the list, a word that the refusal names."""
FREE = {
    *(("init", "--sheet"), ("data inspect", "--sheet"), ("data inspect", "--split"), ("data inspect", "--tokenizer")),
    *(("history list", "--team"), ("history list", "--user"), ("history list", "--name"), ("history export", "--team")),
    ("data reorder", "--out"),
}
"""Options without a metavar that take a name of the user's."""


def options(words: tuple[str, ...], command: Any) -> Iterator[tuple[str, Any]]:
    for name, below in getattr(command, "commands", {}).items():
        yield from options((*words, name), below)
    for option in command.params if not hasattr(command, "commands") else ():
        if option.opts[0].startswith("--") and not option.is_flag:
            yield " ".join(words), option


def test_each_option_of_text_says_what_it_takes_or_refuses_other_words() -> None:
    found = [pair for command in COMMANDS for pair in options((command.name,), get_command(typer_app(command)))]
    texts = {(words, option.opts[0]) for words, option in found if option.type_descriptor.annotation is str and option.metavar is None}
    assert texts == FREE | {pair for pair in CLOSED if pair in texts}
    assert CLOSED.keys() <= {(words, option.opts[0]) for words, option in found}


@pytest.mark.parametrize(("command", "option"), CLOSED, ids=" ".join)
def test_a_word_that_is_not_in_the_list_is_refused(command: str, option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {"job": tmp_path / "job.yaml", "rows": tmp_path / "rows.jsonl"}
    files["job"].write_text(JOB)
    files["rows"].write_text('{"text": "a cat"}\n{"text": "a dog"}\n')
    others, value, named = CLOSED[command, option]

    assert main([*command.split(), *(each.format(**files) for each in others), option, value]) == 2

    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert "no-such" in said
    assert named in said
