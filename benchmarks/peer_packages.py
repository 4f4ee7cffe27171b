"""Packages that only benchmarks need, in a folder of the cache: behind those of the project, so that numpy, pyarrow and torch are the
project's for everybody."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tuneyard.data.cache import cache_root


def add_packages(name: str, packages: Sequence[str]) -> None:
    """Install packages by name and version, without what they ask for, where they are not there; they can be imported from here on."""
    home = cache_root(None) / "peers" / name
    ready = home / ".ready"
    if not ready.exists() or ready.read_text() != " ".join(packages):
        uv = Path(sys.executable).parent / "uv"
        given = ["--quiet", "--python", sys.executable, "--target", str(home), "--no-deps"]
        subprocess.run([str(uv), "pip", "install", *given, *packages], check=True)
        ready.write_text(" ".join(packages))
    sys.path.append(str(home))
