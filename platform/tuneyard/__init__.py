"""Tuneyard: fine-tune and score language models across GPU clusters, from one YAML file that also runs on a laptop.

`tuneyard.run(spec)` runs a job on this machine; see `tuneyard.runtime.run`.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # By name: a plain import here would make every room depend on the runtime, and `import tuneyard` slow.
    if name == "run":
        return import_module("tuneyard.runtime").run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
