"""DeepSpeed's libraries: compiled once however many processes and environments load them, and after a compilation that was killed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.ranks.forks import Call, called

SOURCE = """
#include <Python.h>
static PyObject *answer(PyObject *, PyObject *) { return PyLong_FromLong(42); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "small", "", -1, methods};
PyMODINIT_FUNC PyInit_small() { return PyModule_Create(&definition); }
"""
DYING_COMPILER = """#!/bin/sh
case "$*" in *" -c "*) [ -e {marker} ] || { touch {marker}; kill -9 $COMPILES; } ;; esac
exec c++ "$@"
"""


def builder(source: Path) -> Any:
    from deepspeed.ops.op_builder.builder import OpBuilder

    class Small(OpBuilder):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(name="small")

        def absolute_name(self) -> str:
            return "deepspeed.ops.small_op"

        def sources(self) -> list[str]:
            return [str(source)]

    return Small()


def load_in_process(source: Path) -> tuple[int, int]:
    """What the library answers, and how many compilations were begun."""
    from tuneyard.training.compiled_ops import load_op

    os.environ["COMPILES"] = str(os.getpid())
    begun: list[None] = []
    small = builder(source)
    load_op(small, lambda: begun.append(None))
    return small.load(verbose=False).answer(), len(begun)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TUNEYARD_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "small.cpp"
    path.write_text(SOURCE)
    return path


def test_one_process_compiles_and_the_others_load_what_it_made(source: Path, tmp_path: Path) -> None:
    together = called([Call(load_in_process, (source,))] * 3)
    assert sorted(together) == [(42, 0), (42, 0), (42, 1)]

    elsewhere = tmp_path / "another" / "small.cpp"  # as in another virtual environment
    elsewhere.parent.mkdir()
    elsewhere.write_text(SOURCE)
    assert called([Call(load_in_process, (elsewhere,))]) == [(42, 0)]

    source.write_text(SOURCE.replace("42", "43"))
    assert called([Call(load_in_process, (source,))]) == [(43, 1)]


def test_a_compilation_that_was_killed_holds_up_nobody(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text(DYING_COMPILER.replace("{marker}", str(tmp_path / "died")))
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))

    with pytest.raises(RuntimeError, match=r"exit statuses.*-9"):
        called([Call(load_in_process, (source,))])
    assert (tmp_path / "died").exists()

    assert called([Call(load_in_process, (source,))]) == [(42, 1)]
