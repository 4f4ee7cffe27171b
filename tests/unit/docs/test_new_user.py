"""The script that plays a new user types what stands in the docs, and nothing that a page does not say."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from benchmarks import new_user_steps
from benchmarks.new_user_journeys import PAIRS, bring, journeys
from benchmarks.new_user_steps import Shell, Step, StepFailed, frightening
from tests.unit.docs.checking import complaints
from tests.unit.docs.commands import lines_of
from tests.unit.docs.markdown import ROOT, read_page

from tuneyard.api import load_jobspec

JOURNEYS = journeys(Path("/brought"))
STEPS = [step for journey in JOURNEYS.values() for step in (*journey.steps, *([journey.ends_by] if journey.ends_by else []))]
DOCUMENTED = {(step.page, step.command): step for step in STEPS if step.page}


@pytest.mark.parametrize(("page", "command"), DOCUMENTED)
def test_a_step_stands_in_the_page_that_it_names_and_parses(page: str, command: str) -> None:
    argv = tuple(shlex.split(command))
    found = [line for line in lines_of(read_page(ROOT / page)) if line.argv == argv]
    assert found, f"{page} does not say {command}"
    assert [what for line in found for what in complaints(line)] == []


def test_what_a_user_does_by_hand_is_little() -> None:
    by_hand = {step.command for step in STEPS if not step.page}
    assert len(by_hand) <= 5, f"a page should say these: {by_hand}"


def test_what_the_user_brings_is_readmes_example_and_a_table_with_every_difficulty(tmp_path: Path) -> None:
    bring(tmp_path)
    assert {task.name for task in load_jobspec(tmp_path / "job.yaml").spec.tasks} == {"train", "judge"}
    text = (tmp_path / "faq.csv").read_text(encoding="utf-8")
    assert '""' in text
    assert "ä" in text
    assert any(not answer for _, answer in PAIRS)


def test_a_shell_keeps_what_a_user_has_set_and_where_he_is(tmp_path: Path) -> None:
    shell = Shell(tmp_path, {})
    shell.take(Step("mkdir 'a b' && cd 'a b' && export X='1 \"2\"'", "", ""), 1)
    done = shell.take(Step('echo "$X in $PWD"; echo "a Warning: x"', "README.md", "", shows='1 "2" in .*/home/a b'), 2)
    assert done.frightening == ("a Warning: x",)


@pytest.mark.parametrize(
    ("step", "what"),
    [
        (Step("false", "README.md", ""), "exit code 1 .README.md promises it"),
        (Step("echo no", "", "", shows="yes"), "does not show 'yes'"),
        (Step("sleep 600", "", "", limit_minutes=0.02), "not done after 0.02 minutes"),
    ],
)
def test_a_step_that_does_not_keep_its_promise_ends_the_journey(
    tmp_path: Path, step: Step, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_user_steps, "_GRACE_S", 0.5)
    with pytest.raises(StepFailed, match=what):
        Shell(tmp_path, {}).take(step, 1)


def test_lines_that_look_like_trouble_are_found_once() -> None:
    assert list(frightening("fine\nUserWarning: x\nUserWarning: x\nno errors\nTraceback (most recent call last)")) == [
        "UserWarning: x",
        "Traceback (most recent call last)",
    ]
