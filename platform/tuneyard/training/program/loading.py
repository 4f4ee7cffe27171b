"""Imports a program: `module:object` from the folder of the JobSpec, from the shipped folder, or from an installed package.

The folder is put first on Python's path, as for `python captions.py` in it, and stays there: a program may import late.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput
from tuneyard.api.programs import module_files
from tuneyard.training.program.blame import blamed

FUNCTIONS = ("collate", "loss")
"""Functions of every program. `model` and `predict` are needed only by some tasks."""


@dataclass(frozen=True)
class Loaded:
    """A program and its source. `files`: its module and the module's imports below `folder`; empty for an installed module."""

    name: str
    program: Any
    folder: Path
    files: tuple[Path, ...]

    @property
    def makes_model(self) -> bool:
        return callable(getattr(self.program, "model", None))

    @property
    def acts(self) -> bool:
        """Whether a batch is rolled out before its loss."""
        return callable(getattr(self.program, "rollout", None))

    @property
    def measures(self) -> bool:
        """Whether it has metrics of its own."""
        return callable(getattr(self.program, "metrics", None))

    @property
    def predicts(self) -> bool:
        return callable(getattr(self.program, "predict", None))


def load_program(name: str, folder: Path) -> Loaded:
    """The program `module:object`. Raises BadInput for an unknown module or object, an error while it is imported or made (with the line of
    the user's own code), and an object without `collate` and `loss`.
    """
    module_name, _, wanted = name.partition(":")
    files = tuple(sorted(module_files(name, folder)))
    _prefer(folder, module_name, local=bool(files))
    if not files and not _is_installed(module_name):
        raise BadInput(
            f"there is no module {module_name} in {folder}, and no installed package has it",
            "check train.program: module:object, the module beside the JobSpec, in train.programDir, or installed where ranks run",
        )
    home = folder if files else _home_of(module_name)
    with blamed(
        f"importing {module_name}", home, "correct the module; `python -c 'import " + module_name + "'` in its folder shows it all"
    ):
        module = importlib.import_module(module_name)
    found = getattr(module, wanted, None)
    if found is None:
        names = [each for each in vars(module) if not each.startswith("_")]
        near = get_close_matches(wanted, names, n=1)
        raise BadInput(
            f"module {module_name} has no {wanted}" + (f" (did you mean {near[0]}?)" if near else ""),
            "name an object, or a class without arguments, that has collate, loss and predict",
        )
    if inspect.isclass(found):
        with blamed(f"making {wanted}()", home, "give the class an __init__ without arguments, or name an object of it in the module"):
            found = found()
    missing = [function for function in FUNCTIONS if not callable(getattr(found, function, None))]
    if missing:
        raise BadInput(f"{name} has no function {' and no '.join(missing)}", "a program has collate(rows), loss(model, batch) and predict")
    return Loaded(name, found, home, files)


def _prefer(folder: Path, module_name: str, *, local: bool) -> None:
    """Put the folder first on the path, and forget a module of this name from elsewhere: an earlier task of this process may have had
    one.
    """
    path = str(folder)
    sys.path[:] = [path, *(each for each in sys.path if each != path)]
    importlib.invalidate_caches()
    top = module_name.partition(".")[0]
    for name in [each for each in sys.modules if local and (each == top or each.startswith(f"{top}."))]:
        del sys.modules[name]


def _is_installed(module_name: str) -> bool:
    return importlib.util.find_spec(module_name.partition(".")[0]) is not None


def _home_of(module_name: str) -> Path:
    spec = importlib.util.find_spec(module_name.partition(".")[0])
    return Path(spec.origin).parent if spec is not None and spec.origin else Path()
