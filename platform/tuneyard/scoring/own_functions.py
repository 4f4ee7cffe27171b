"""The process of the user's own metrics: `python -m tuneyard.scoring.own_functions DESCRIPTOR FOLDER MODULE:FUNCTION...`.

It imports the functions, answers once whether they can be called, then answers each row with one message per function: a number, or the
reason why there is none. `own_metrics` starts it and limits its time. It imports the standard library alone, so that it starts at once.
"""

from __future__ import annotations

import importlib
import inspect
import math
import os
import pickle
import sys
import threading
from collections.abc import Callable
from difflib import get_close_matches
from multiprocessing.connection import Connection
from numbers import Real
from typing import Any

ARGUMENTS = ("output", "references", "row")
CONTRACT = f"an own metric is a function of {', '.join(ARGUMENTS)} that returns a number"
_SHOWN = 300


class Unusable(Exception):
    """A function that cannot be a metric: the cause, and the next step."""


def load(program: str) -> Callable[..., Any]:
    """The function `module:name`. Raises Unusable."""
    module_name, _, wanted = program.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise Unusable(
            f"the metric {program} cannot be imported: {_said(error)}",
            "put the module beside the JobSpec, name its folder in score.metricsDir, or install its package where engines run",
        ) from error
    function: Callable[..., Any] | None = getattr(module, wanted, None)
    if not callable(function):
        near = get_close_matches(wanted, vars(module), n=1)
        raise Unusable(f"module {module_name} has no function {wanted}" + (f" (did you mean {near[0]}?)" if near else ""), CONTRACT)
    try:
        inspect.signature(function).bind(*ARGUMENTS)
    except TypeError as error:
        raise Unusable(f"the metric {program} does not take three arguments: {error}", CONTRACT) from error
    except ValueError:
        pass  # built-in functions have no signature
    return function


def value_of(function: Callable[..., Any], row: bytes) -> float | bool | str:
    """The number or truth value of a row, or why there is none. `row`: pickled arguments; each function has its own copy of them."""
    try:
        value = function(*pickle.loads(row))
        if not isinstance(value, Real) and not _is_one_number(value):
            return f"it returned {type(value).__name__}, not a number"
        if isinstance(value, bool) or _kind(value) == "b":
            return bool(value)
        number = float(value)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code may raise anything
        return _said(error)
    return number if math.isfinite(number) else f"it is {number}"


def _is_one_number(value: Any) -> bool:
    """Whether it is a scalar of numpy or torch; their truth values are no Real."""
    return getattr(value, "shape", None) == () and getattr(getattr(value, "dtype", None), "kind", "f") in "biuf"


def _kind(value: Any) -> str | None:
    """The kind of a scalar of numpy; of one of torch, `b` for a truth value."""
    dtype = getattr(value, "dtype", None)
    return "b" if str(dtype) == "torch.bool" else getattr(dtype, "kind", None)


def _said(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:_SHOWN]
    except Exception:  # noqa: BLE001 - the text of an error is the user's code too
        return type(error).__name__


def end_with_parent() -> None:
    """End this process when its parent ends, in whatever function it then is: the parent holds the other end of its input. Functions get an
    empty input instead."""
    lifeline = os.dup(0)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)

    def wait() -> None:
        os.read(lifeline, 1)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main(descriptor: int, folder: str, programs: list[str]) -> None:
    """Answer rows until the connection is closed."""
    end_with_parent()
    parent = Connection(descriptor)
    if folder:
        sys.path.insert(0, folder)
    functions = []
    try:
        for program in programs:
            functions.append(load(program))
            parent.send(None)
    except Unusable as error:
        parent.send(error.args)
        return
    while True:
        try:
            row = parent.recv_bytes()
        except EOFError:
            return
        for function in functions:
            parent.send(value_of(function, row))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
