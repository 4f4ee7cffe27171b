"""Importing a stack: what libraries look for without using it is hidden from them meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def without(absent: Sequence[str]) -> Iterator[None]:
    """Within, libraries that ask whether one of the modules `absent` is installed are told that it is not.

    `importlib.util.find_spec` returns None for a name that `sys.modules` maps to None, and importing it raises ModuleNotFoundError.
    Modules that are loaded already stay as they are.
    """
    hidden = [name for name in absent if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            if sys.modules.get(name) is None:
                sys.modules.pop(name, None)
