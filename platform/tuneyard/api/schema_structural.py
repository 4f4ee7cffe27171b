"""pydantic's JSON schema as the structural schema that API servers require.

References are inlined, and constructs that OpenAPI v3 lacks are rewritten. A structural schema gives every value one type, except for
int-or-string, so unions become:

- X or nothing: X. The API server drops nulls of fields that are not nullable, and pydantic fills in the default.
- A number or `auto`: int-or-string, with `minimum` for the number and `pattern` or `enum` for the text.
- A switch or `auto`: an untyped value with an enum.
- A group or a word (strategy, workers, targets): an untyped value, whose content is checked at admission.

Below `Job` no field has a default, and no field that a ModelTemplate may give is required: defaults from the API server would override
those of the template. The models fill them in whenever a job is read.
"""

from __future__ import annotations

import json
from typing import Any

from tuneyard.api.quantities import UNITS
from tuneyard.api.schema_cel import CEL_RULES
from tuneyard.api.template_merge import TEMPLATED

Schema = dict[str, Any]
_UNTYPED: Schema = {"x-kubernetes-preserve-unknown-fields": True}
_KEPT = ("description", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "maxProperties")


PARTS = ("Comet", "Wandb", "Mlflow", "RankModel", "Windows")
"""Nested groups whose required fields a template may give too. The models require them."""


def structural(schema: Schema) -> Schema:
    """A self-contained structural schema. It accepts everything that `schema` accepts, and more where `schema` has no structural form."""
    return _convert(schema, schema.get("$defs", {}))


def _convert(node: Schema, definitions: dict[str, Schema]) -> Schema:
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        found = _convert(definitions[name], definitions)
        if name in CEL_RULES:
            found["x-kubernetes-validations"] = [dict(rule) for rule in CEL_RULES[name]]
        if name in PARTS or name in [model.__name__ for model in TEMPLATED.values()]:  # CEL requires them in jobs without a template
            found.pop("required", None)
        return (_without_defaults(found) if name == "Job" else found) | _annotations(node)
    if node.get("x-kubernetes-int-or-string"):
        return _with_unit({key: value for key, value in node.items() if key != "title"})
    if "anyOf" in node:
        return _with_unit(_union(node, definitions) | _annotations(node))
    return _plain(node, definitions) | _annotations(node)


def _without_defaults(node: Schema) -> Schema:
    """The same schema without defaults. Descriptions name the defaults instead."""
    result = {key: value for key, value in node.items() if key != "default"}
    said, value = node.get("description"), node.get("default")
    if said is not None and value not in (None, "", [], {}) and not isinstance(value, dict | list) and "default:" not in said:
        result["description"] = f"{said}; default: {json.dumps(value) if not isinstance(value, str) else value}"
    if "properties" in node:
        result["properties"] = {name: _without_defaults(inner) for name, inner in node["properties"].items()}
    for inner in ("items", "additionalProperties"):
        if isinstance(node.get(inner), dict):
            result[inner] = _without_defaults(node[inner])
    return result


def _with_unit(node: Schema) -> Schema:
    """Appends the format of a duration or a size to its description."""
    said, unit = node.get("description"), UNITS.get(node.get("pattern", ""))
    if unit is None or said is None or said.endswith(f"({unit})") or said == unit:
        return node
    return {**node, "description": f"{said} ({unit})"}


def _annotations(node: Schema) -> Schema:
    """Description and default of a field. A null default means absent, and is left out."""
    found = {key: node[key] for key in ("description",) if key in node}
    return found | {"default": node["default"]} if node.get("default") is not None else found


def _plain(node: Schema, definitions: dict[str, Schema]) -> Schema:
    result: Schema = {key: node[key] for key in _KEPT if key in node}
    if "const" in node:
        result["enum"] = [node["const"]]
    for bound in ("Minimum", "Maximum"):
        if f"exclusive{bound}" in node:  # a number in JSON schema, a flag beside the number in OpenAPI v3
            result[bound.lower()] = node[f"exclusive{bound}"]
            result[f"exclusive{bound}"] = True
    kind = node.get("type") or _type_of_enum(result.get("enum", []))
    if kind is None:
        return result | _UNTYPED
    result["type"] = kind
    if kind == "array":
        items = node.get("items") or node["prefixItems"][0]
        result["items"] = _convert(items, definitions)
    if kind == "object":
        result |= _object(node, definitions)
    return result


def _object(node: Schema, definitions: dict[str, Schema]) -> Schema:
    if "properties" in node:
        properties = {name: _convert(inner, definitions) for name, inner in node["properties"].items()}
        if node.get("title") == "Job":
            properties["tasks"] |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
        result: Schema = {"properties": properties}
        required = [name for name in node.get("required", []) if "default" not in properties[name]]
        return result | ({"required": required} if required else {})
    values = node.get("additionalProperties")
    if isinstance(values, dict) and values:
        return {"additionalProperties": _convert(values, definitions)}
    # A group without fields (`full: {}`) stays closed. A free mapping (pod templates, defaults) accepts any fields.
    return {} if values is False else dict(_UNTYPED)


def _union(node: Schema, definitions: dict[str, Schema]) -> Schema:
    branches = [_convert(branch, definitions) for branch in node["anyOf"] if branch.get("type") != "null"]
    if len(branches) == 1:
        return branches[0]
    kinds = {branch.get("type") for branch in branches}
    if kinds == {"integer", "string"}:
        return _int_or_string(branches)
    if kinds == {"boolean", "string"} and all("enum" in branch or branch["type"] == "boolean" for branch in branches):
        words = [word for branch in branches for word in branch.get("enum", [])]
        return {**_UNTYPED, "enum": [True, False, *words]}
    return dict(_UNTYPED)


def _int_or_string(branches: list[Schema]) -> Schema:
    number, text = sorted(branches, key=lambda branch: branch["type"] == "string")
    result: Schema = {"x-kubernetes-int-or-string": True}
    if "enum" in number and "enum" in text:
        return result | {"enum": [*number["enum"], *text["enum"]]}
    result |= {key: number[key] for key in ("minimum", "maximum") if key in number}
    return result | ({"pattern": f"^({'|'.join(text['enum'])})$"} if "enum" in text else {})


def _type_of_enum(values: list[Any]) -> str | None:
    if values and all(isinstance(value, str) for value in values):
        return "string"
    return "integer" if values and all(isinstance(value, int) for value in values) else None
