"""The folder that a person may have meant by a path that leads nowhere."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path


def near_folder(path: Path) -> Path | None:
    """A folder beside the missing `path` whose name is nearest to its name; None where there is none alike."""
    try:
        names = [each.name for each in path.parent.iterdir() if each.is_dir() and not each.name.startswith(".")]
    except OSError:
        return None
    near = get_close_matches(path.name, names, n=1)
    return path.parent / near[0] if near else None
