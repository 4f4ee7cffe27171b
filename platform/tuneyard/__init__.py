"""Tuneyard: fine-tune and score language models across GPU clusters, from one YAML file that also runs on a laptop.

`tuneyard.run(spec)` runs a job on this machine; see `tuneyard.runtime.run`. `tuneyard.submit(spec)` gives it to a hub; see
`tuneyard.cluster.submit`.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
_ROOMS = {"run": "tuneyard.runtime", "submit": "tuneyard.cluster"}


def __getattr__(name: str) -> Any:
    # By name: a plain import here would make every room depend on the runtime, and `import tuneyard` slow.
    room = _ROOMS.get(name)
    if room is not None:
        return getattr(import_module(room), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
