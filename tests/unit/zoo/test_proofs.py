"""Proofs of tests: only a pass is kept, and for its inputs alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.zoo import proofs
from tests.zoo.proofs import PRODUCT, ROOT, proven_once, sources_of

ENGINE = ROOT / "tests" / "integration" / "parallel" / "test_tensor_parallel_engine.py"


@pytest.fixture(autouse=True)
def no_proofs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs, "PROOFS", tmp_path / "proofs")
    monkeypatch.delenv("TUNEYARD_NO_PROOF_CACHE", raising=False)


def test_a_pass_is_kept_until_an_input_changes_or_proofs_are_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def passes() -> None:
        ran.append("")

    for _ in range(2):
        proven_once(passes)()
    assert len(ran) == 1

    monkeypatch.setenv("TUNEYARD_NO_PROOF_CACHE", "1")
    proven_once(passes)()
    assert len(ran) == 2

    monkeypatch.delenv("TUNEYARD_NO_PROOF_CACHE")
    monkeypatch.setattr(proofs, "_inputs", lambda _: "other")
    monkeypatch.setattr(proofs, "_inputs_now", lambda _: "other")
    proven_once(passes)()
    assert len(ran) == 3


def test_a_failure_is_not_kept() -> None:
    ran: list[str] = []

    @proven_once
    def fails() -> None:
        ran.append("")
        raise ValueError

    for _ in range(2):
        with pytest.raises(ValueError):
            fails()
    assert len(ran) == 2


def test_a_pass_is_not_kept_where_a_source_changed_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    @proven_once
    def passes() -> None:
        monkeypatch.setattr(proofs, "_inputs", lambda _: "other")

    passes()

    assert not proofs.PROOFS.exists()


def test_inputs_are_the_rooms_and_the_helpers_that_a_test_reaches() -> None:
    found = sources_of(ENGINE)

    reached = ("tests/ranks/applied_models.py", "tests/ranks/forks.py", "tests/zoo/exceptions.py", "tests/conftest.py")
    assert {ROOT / path for path in reached} <= found
    rooms = {path.relative_to(PRODUCT).parts[0] for path in found if path.is_relative_to(PRODUCT)}
    assert {"parallel", "training", "api"} <= rooms
    assert not {"cli", "console", "federation", "cluster"} & rooms
    assert set((PRODUCT / "parallel").rglob("*.py")) <= found, "rooms are whole: their doors import by name"
