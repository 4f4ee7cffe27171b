"""What a fork sees of the packages of a GPU image."""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import version


def see() -> None:
    """Write, to the descriptor of the last argument, the versions of the packages in the first, and the modules that are loaded from the
    folders in the second."""
    packages, folders = sys.argv[1].split(","), sys.argv[2].split(":")
    top_level = {name: module for name, module in list(sys.modules.items()) if "." not in name}
    loaded = sorted(name for name, module in top_level.items() if (getattr(module, "__file__", None) or "").startswith(tuple(folders)))
    with os.fdopen(int(sys.argv[-1]), "w") as out:
        json.dump({"versions": {name: version(name) for name in packages}, "loaded": loaded}, out)
