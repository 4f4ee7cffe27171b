"""What a fork sees of the packages of a GPU image."""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import version


def see() -> None:
    """Write the versions of the packages in the first argument, and the file of `pynvml`, to the descriptor of the last argument."""
    with os.fdopen(int(sys.argv[-1]), "w") as out:
        versions = {name: version(name) for name in sys.argv[1].split(",")}
        json.dump({"versions": versions, "pynvml": getattr(sys.modules.get("pynvml"), "__file__", None)}, out)
