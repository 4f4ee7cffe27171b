"""The plugin of kubectl, as far as it needs no hub."""

from __future__ import annotations

import pytest

from tuneyard.cli.commands import COMMANDS
from tuneyard.cli.kubectl import VERBS, complete, main, verb_first


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["status", "x", "-n", "maps"], ["status", "x", "-n", "maps"]),
        (["-n", "maps", "status", "x"], ["status", "x", "-n", "maps"]),
        (["--context=hub", "-n", "maps", "logs", "x", "-f"], ["logs", "x", "-f", "--context=hub", "-n", "maps"]),
        (["--help"], ["--help"]),
        (["-n"], []),
        ([], []),
    ],
)
def test_kubectls_flags_may_stand_before_the_verb(given: list[str], expected: list[str]) -> None:
    assert verb_first(given) == expected


def test_it_offers_what_asks_the_hub(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n  {verb} " in shown for verb in VERBS)
    assert set(VERBS) < {command.name for command in COMMANDS}


@pytest.mark.parametrize(("argv", "hint"), [(["plan", "x"], "it asks no hub: tuneyard plan"), (["stauts"], "use one of: submit, status")])
def test_what_it_does_not_offer(argv: list[str], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([""], [*VERBS, ":4"]),
        (["s"], ["submit", "status", "suspend", "schedule", ":4"]),
        (["submit", ""], [":0"]),
        (["clusters", ""], [":4"]),
        (["status", "--kubeconfig", "/no"], [":0"]),
        (["status", "-n", "maps", ""], [":4"]),
    ],
)
def test_completion_without_a_hub(
    words: list[str], expected: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    monkeypatch.setattr("sys.argv", ["kubectl_complete-tuneyard", *words])
    assert complete() == 0
    assert capsys.readouterr().out.splitlines() == expected
