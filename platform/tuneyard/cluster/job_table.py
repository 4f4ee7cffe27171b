"""JobSpecs as lists show them, from the table that the API server makes of them: a tenth of the bytes of whole objects. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneyard.api.schema import columns_of

_PATHS = {column.name: tuple(column.path.removeprefix(".").split(".")) for column in columns_of("JobSpec")}


def jobs_of(table: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """JobSpecs with their metadata and the fields of the columns; None where the CRD of this hub is older, and lacks some of them."""
    places = {each.get("name"): place for place, each in enumerate(table.get("columnDefinitions") or [])}
    if not places.keys() >= _PATHS.keys():
        return None
    columns = [(places[name], part, rest) for name, (part, *rest) in _PATHS.items()]
    found = []
    for row in table.get("rows") or []:
        job: dict[str, Any] = {"metadata": row["object"]["metadata"], "spec": {}, "status": {}}
        cells = row["cells"]
        for place, part, rest in columns:
            value = cells[place]
            if value is None or value == "":
                continue
            inner = job[part]
            for name in rest[:-1]:
                inner = inner.setdefault(name, {})
            inner[rest[-1]] = value
        found.append(job)
    return found
