"""JobSpecs as lists show them: facts by the columns of the table that the API server makes of them. Of 10,000 JobSpecs it is a sixth of the
bytes of whole objects. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneyard.api.schema import HOLDS, columns_of

Facts = Mapping[str, Any]
"""A JobSpec by the names of its columns, with `Name`. Absent, None and the empty text mean the same."""
_PATHS = {column.name: column.path.removeprefix(".").split(".") for column in columns_of("JobSpec") if column.path != HOLDS}
_PATHS |= {"Name": ["metadata", "name"]}
_NEEDED = _PATHS.keys() | {"Holds"}


def facts_of_table(table: Mapping[str, Any]) -> list[Facts] | None:
    """The rows of a table; None where the CRD of this hub is older, and lacks some of the columns."""
    names = [each.get("name") for each in table.get("columnDefinitions") or []]
    if not set(names) >= _NEEDED:
        return None
    return [dict(zip(names, row["cells"], strict=True)) for row in table.get("rows") or []]


def facts_of(job: Mapping[str, Any]) -> Facts:
    """The same of a whole JobSpec."""
    attempts = (job.get("status") or {}).get("attempts") or []
    held = [each["placement"] for each in attempts if not each.get("cleaned") and each.get("placement")]
    return {name: _at(job, path) for name, path in _PATHS.items()} | {"Holds": held[0].get("cluster") if held else None}


def _at(job: Mapping[str, Any], path: list[str]) -> Any:
    found: Any = job
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found
