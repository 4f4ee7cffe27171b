"""The user's own metrics in an engine's process: their functions are loaded once, and called for each answer.

`function(output, references, row)` gets the model's text, the list of expected answers, and the row's columns in `data.keep` as a dict. It
returns a number or a truth value.
"""

from __future__ import annotations

import importlib
import inspect
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from numbers import Real
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput
from tuneyard.metrics.own import column_of, program_of
from tuneyard.scoring.request import ScoreRequest
from tuneyard.scoring.rows import ScoredRow
from tuneyard.storage import fetch_folder

_ARGUMENTS = ("output", "references", "row")
_CONTRACT = f"an own metric is a function of {', '.join(_ARGUMENTS)} that returns a number"


class OwnMetrics:
    """The loaded functions. `names`: as in `score.ownMetrics`."""

    def __init__(self, names: Sequence[str], folder: Path | None) -> None:
        """Import the modules, from `folder` or from installed packages. Raises BadInput: no such function, or an error while importing."""
        if folder is not None and names:
            sys.path[:] = [str(folder), *(each for each in sys.path if each != str(folder))]
            importlib.invalidate_caches()
        self._functions = {column_of(name): _load(program_of(name)) for name in names}

    def measure(self, row: ScoredRow, columns: Mapping[str, Any]) -> None:
        """Set the values of a row with an output. Raises ValueError where a function fails, or returns no finite number."""
        if row.output is None:
            return
        for name, function in self._functions.items():
            row.values[name] = _value(name, function, row.output, row.references, columns)


def own_metrics_of(request: ScoreRequest) -> OwnMetrics:
    """The own metrics of a task, fetched and loaded in this process. Raises BadInput as `OwnMetrics`."""
    code = request.task.metrics_dir
    folder = fetch_folder(code, Path(request.scratch) / "metrics") if code is not None else None
    return OwnMetrics(request.task.own_metrics, folder)


def _load(program: str) -> Callable[..., Any]:
    module_name, _, wanted = program.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise BadInput(
            f"the metric {program} cannot be imported: {type(error).__name__}: {error}",
            "put the module beside the JobSpec, name its folder in score.metricsDir, or install its package where engines run",
        ) from error
    function: Callable[..., Any] | None = getattr(module, wanted, None)
    if not callable(function):
        near = get_close_matches(wanted, vars(module), n=1)
        raise BadInput(f"module {module_name} has no function {wanted}" + (f" (did you mean {near[0]}?)" if near else ""), _CONTRACT)
    try:
        inspect.signature(function).bind(*_ARGUMENTS)
    except TypeError as error:
        raise BadInput(f"the metric {program} does not take three arguments: {error}", _CONTRACT) from error
    except ValueError:
        pass  # built-in functions have no signature
    return function


def _value(name: str, function: Callable[..., Any], output: str, references: Sequence[str], columns: Mapping[str, Any]) -> float:
    try:
        value = function(output, list(references), dict(columns))
    except (Exception, SystemExit) as error:
        raise ValueError(f"{name} cannot be computed: {type(error).__name__}: {error}") from error
    if not isinstance(value, Real):
        raise ValueError(f"{name} cannot be computed: it returned {type(value).__name__}, not a number")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{name} cannot be computed: it is {number}")
    return number
