"""Hides optional modules while a stack is imported: libraries look for them, but the stack does not use them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def without(absent: Sequence[str]) -> Iterator[None]:
    """Within the block, the modules `absent` seem not to be installed.

    `importlib.util.find_spec` returns None for a name that `sys.modules` maps to None, and importing it raises ModuleNotFoundError.
    Modules that are already loaded stay loaded.
    """
    hidden = [name for name in absent if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            if sys.modules.get(name) is None:
                sys.modules.pop(name, None)
