"""Patterns of paths, with one meaning on disks and in buckets.

`*`, `?` and `[…]` match within a folder, `**` crosses folders, `{a,b}` matches either.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

_WILDCARD = re.compile(r"[*?\[]|\{[^{}]*,[^{}]*\}")
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_TOKEN = re.compile(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]]*\]|.", re.DOTALL)


def is_pattern(path: str) -> bool:
    return bool(_WILDCARD.search(path))


def fixed_folder(pattern: str) -> str:
    """The folder below which all matches lie: the path before the first wildcard."""
    found = _WILDCARD.search(pattern)
    return pattern[: found.start()].rpartition("/")[0] if found else pattern


def expanded(pattern: str) -> list[str]:
    """Patterns without braces: `a.{x,y}` -> `a.x`, `a.y`; braces may be nested."""
    found = _BRACES.search(pattern)
    if found is None:
        return [pattern]
    either = [expanded(pattern[: found.start()] + choice + pattern[found.end() :]) for choice in found[1].split(",")]
    return list(dict.fromkeys(itertools.chain.from_iterable(either)))


def local_matches(pattern: str) -> list[Path]:
    """Files that match a pattern of paths, in order of their paths."""
    found: set[Path] = set()
    for each in expanded(pattern):
        path = Path(f"{each}/*" if each.endswith("**") else each)
        found.update(match for match in Path(path.anchor or ".").glob(str(path.relative_to(path.anchor))) if match.is_file())
    return sorted(found)


def matcher(pattern: str) -> re.Pattern[str]:
    """A regular expression for whole paths of objects."""
    return re.compile("|".join(f"(?:{''.join(_regex(token) for token in _TOKEN.findall(each))})" for each in expanded(pattern)))


def _regex(token: str) -> str:
    if token == "**/":
        return "(?:.*/)?"
    if token == "**":
        return ".*"
    if token in ("*", "?"):
        return f"[^/]{token if token == '*' else ''}"
    if token.startswith("[") and len(token) > 1:
        inside = token[1:-1].replace("\\", "\\\\")
        return f"[^/{inside[1:]}]" if inside.startswith("!") else f"[{inside}]"
    return re.escape(token)
