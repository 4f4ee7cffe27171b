"""Answers that were learned by heart come back exactly and end by themselves, whichever chat template they were learned under."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.builders.templates import ALL, Template
from tests.ranks.template_runs import ROWS, outcome
from tests.zoo.proofs import proven_once

FEW = {"trl-qwen3", "trl-smolvlm", "ours-strips_thinking"}
LONG_INSTRUCTIONS = {"trl-cohere2", "trl-gptoss", "trl-llama3_1", "trl-llama3_2", "trl-muse_glimmer"}
"""A model of two layers does not learn all answers behind hundreds of tokens of instructions in 120 steps."""

NO_LAST_END = {"vllm-template_chatml"}
"""It ends all turns but the last: a warning says so."""


@pytest.mark.parametrize("template", [each for each in ALL if str(each) in FEW], ids=str)
@proven_once
def test_answers_learned_under_a_template_come_back_and_end(template: Template, tmp_path: Path) -> None:
    assert_learned(template, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("template", [each for each in ALL if str(each) not in FEW], ids=str)
def test_answers_learned_under_any_other_template_come_back_and_end(template: Template, tmp_path: Path) -> None:
    """The short test has those of `FEW`."""
    assert_learned(template, tmp_path)


def assert_learned(template: Template, folder: Path) -> None:
    found = outcome(template, folder)
    if found.refusal:
        assert "chat template" in found.refusal
    elif str(template) in LONG_INSTRUCTIONS:
        assert found.exact == found.stopped >= ROWS // 3
    elif str(template) not in NO_LAST_END:
        assert found.exact == ROWS if found.end else found.exact <= ROWS
        assert found.stopped == ROWS or not found.end
