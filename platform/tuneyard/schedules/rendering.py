"""The JobSpec of a run: the Schedule's template with the values of its expressions, and with an output folder of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tuneyard.schedules.expressions import BadExpression, Moment, check, has_expression, render
from tuneyard.storage.uris import join

_OTHER_LANGUAGE = ("chatTemplate",)
"""Fields whose text is a Jinja template. Their braces belong to it."""
Path = tuple[str | int, ...]


def rendered(value: Any, moment: Moment) -> Any:
    """JSON-like `value` with the values of the expressions in its texts. Keys stay as they are. Raises BadExpression."""
    if isinstance(value, str):
        return render(value, moment) if has_expression(value) else value
    if isinstance(value, Mapping):
        return {key: inner if key in _OTHER_LANGUAGE else rendered(inner, moment) for key, inner in value.items()}
    return [rendered(inner, moment) for inner in value] if isinstance(value, list) else value


def expression_problems(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Wrong expressions in the texts of JSON-like `value`, each with its path below `path` and the reason."""
    if isinstance(value, str):
        try:
            check(value)
        except BadExpression as error:
            yield path, str(error)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if key not in _OTHER_LANGUAGE:
                yield from expression_problems(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from expression_problems(inner, (*path, index))


def run_spec(template: Mapping[str, Any], moment: Moment) -> dict[str, Any]:
    """The spec of a run: the template's spec for its moment, with a folder of its own below the template's output. Raises BadExpression."""
    spec: dict[str, Any] = rendered(dict(template), moment)
    placement = spec.get("placement") or {}
    if placement.get("spread") == "allowed":  # templates of an older version have it; the API server refuses it in a new JobSpec
        spec["placement"] = {field: value for field, value in placement.items() if field != "spread"}
    storage = spec.get("storage") or {}
    if storage.get("output"):  # without it, the hub gives each job a folder of its own
        spec["storage"] = {**storage, "output": join(storage["output"], moment.name)}
    return spec
