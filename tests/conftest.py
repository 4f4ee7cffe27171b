"""For all tests: profiles of property tests, a history that goes with the tests, compiled modules, no garbage collection of what imports
made, and threads of OpenMP that do not spin while they wait."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from math import ceil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

settings.register_profile("long", deadline=None, derandomize=False, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("short", settings.get_profile("long"), derandomize=True)
settings.load_profile("short")

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
"""Read when torch is loaded. Beside other parts, threads that spin while they wait hold up the ones they wait for (docs/testing.md)."""

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
"""Containers set it. Each process that a test starts would compile our modules anew, for a third of a second."""

gc.disable()
"""While tests are collected: the modules that they import stay, and a fifth of that time would go into looking for garbage in them."""

SHORT_SHARE = 3
"""`make test` tries one of this many examples of a property test."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Take a share of the examples of each property test, unless the profile is `long`.

    A profile sets only what a test leaves out, and most property tests set `max_examples`. The settings of a test are replaced where
    hypothesis's own plugin of pytest replaces them.
    """
    if not settings().derandomize:
        return
    functions = [item.obj for item in items if isinstance(item, pytest.Function) and is_hypothesis_test(item.obj)]
    for test in {getattr(function, "__func__", function) for function in functions}:
        declared = test._hypothesis_internal_use_settings
        test._hypothesis_internal_use_settings = settings(declared, max_examples=ceil(declared.max_examples / SHORT_SHARE))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def history_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A database that goes with the tests; a test that wants another says so."""
    path = tmp_path_factory.mktemp("history") / "history.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNEYARD_HISTORY_URL", f"sqlite:///{path}")
        yield path
