"""The losses of each step are those of TRL's trainers on the same rows. `python benchmarks/trl_losses.py` compares more architectures."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.ranks.trl_losses import compare
from tests.zoo.proofs import proven_once


@pytest.mark.parametrize(
    ("kind", "objective"),
    [("llama", "clm"), ("gpt2", "sft"), ("mixtral", "sft"), ("qwen3_moe", "clm")],
)
@proven_once
def test_losses_are_those_of_trl(kind: str, objective: str, tmp_path: Path) -> None:
    found = compare(tmp_path, kind, objective=objective)
    assert found.ours == pytest.approx(found.theirs, rel=2e-6)


@pytest.mark.parametrize(
    ("kind", "loss", "adapted"),
    [("llama", "sigmoid", False), ("gemma2", "ipo", False), ("gpt2", "hinge", True), ("mixtral", "sigmoid", True)],
)
@proven_once
def test_losses_of_pairs_are_those_of_trl(kind: str, loss: str, adapted: bool, tmp_path: Path) -> None:
    found = compare(tmp_path, kind, objective="dpo", loss=loss, adapted=adapted)
    assert found.ours == pytest.approx(found.theirs, rel=2e-6)
