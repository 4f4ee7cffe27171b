"""Tuneyard: fine-tune and score language models across GPU clusters, from one YAML file that also runs on a laptop.

`tuneyard.run(spec)` runs a job on this machine, `tuneyard.submit(spec)` gives it to a hub.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
_ROOMS = {"run": "tuneyard.cli.from_python", "submit": "tuneyard.cli.submit.from_python"}
"""Their types are in `__init__.pyi`."""


def __getattr__(name: str) -> Any:
    # Imported at their first use, and by name: a plain import here would make every room depend on the runtime, and `import tuneyard` slow.
    room = _ROOMS.get(name)
    if room is not None:
        return getattr(import_module(room), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_ROOMS})
