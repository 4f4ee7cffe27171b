"""The reference pages, from the models and the rules themselves: `python -m tuneyard.api.docs docs/reference` writes them.

A test fails where a committed page is not what this module writes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tuneyard.api.base import API_VERSION
from tuneyard.api.rules_case import Case, Fix, Rule
from tuneyard.api.rules_examples import task_with
from tuneyard.api.rules_table import RULES
from tuneyard.api.schema import defaults_schema

_GENERATED = "<!-- Written by `make docs` from the code: change the code, not this page. -->\n"


def pages() -> dict[str, str]:
    """File name -> content of every reference page."""
    return {"jobspec.md": jobspec_page(), "combinations.md": combinations_page()}


def jobspec_page() -> str:
    """Every field of a JobSpec that a person writes, one table per group."""
    schema = defaults_schema("JobSpec")
    parts = [
        "# JobSpec: all fields\n",
        _GENERATED,
        f"A file starts with `apiVersion: {API_VERSION}`, `kind: JobSpec` and `metadata: {{name: …}}`; everything below is under `spec`.",
        "Fields without a default and not marked *required* may be left out. `tuneyard validate FILE` checks a file against this page",
        "and against the [combinations that cannot work](combinations.md).\n",
    ]
    for path, group in _groups(schema, "Job", "spec", set()):
        parts.append(f"## `{path}`\n")
        parts.append(f"{group.get('description', '').strip()}\n")
        parts.append(_table(group, schema["$defs"]))
    return "\n".join(parts)


def combinations_page() -> str:
    """Every rule: what is refused, why, and what works instead."""
    parts = [
        "# Combinations that cannot work\n",
        _GENERATED,
        "These are refused before anything starts, by `tuneyard validate`, `plan` and `run` and by the hub, with the nearest",
        "combination that works. A setting left at `auto` never breaks a rule: the planner chooses around them.\n",
    ]
    for kind in ("train", "score"):
        parts.append(f"## In a {kind} task\n")
        for rule in RULES:
            if rule.kind == kind:
                parts.append(_rule_section(rule))
    return "\n".join(parts)


def _rule_section(rule: Rule) -> str:
    case = Case(task=task_with(rule), device=rule.example_device, model_type=rule.example_model_type)
    where = f" (on `{rule.example_device.sku}`)" if rule.example_device else ""
    where += f" (model type `{rule.example_model_type}`)" if rule.example_model_type else ""
    works = "\n".join(f"- {_settings(fix)}" for fix in rule.nearest(case))
    refused = f"{rule.refused[:1].upper()}{rule.refused[1:]}"
    return f"### {rule.id}\n\n{refused}: {rule.why}.\n\nRefused{where}: {_settings(rule.example)}\n\nWorks instead:\n\n{works}\n"


def _settings(fix: Fix) -> str:
    return ", ".join(f"no `{name}`" if value is None else f"`{name}: {_flow(value)}`" for name, value in fix.items())


def _groups(schema: dict[str, Any], name: str, path: str, seen: set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Groups of fields in the order in which a file nests them, each at the first path where it stands."""
    seen.add(name)
    group = schema["$defs"][name]
    yield path, group
    for field, node in group.get("properties", {}).items():
        for inner in _references(node):
            if inner not in seen:
                suffix = "[]" if node.get("type") == "array" else ""
                yield from _groups(schema, inner, f"{path}.{field}{suffix}", seen)


def _references(node: dict[str, Any]) -> list[str]:
    if "$ref" in node:
        return [node["$ref"].rpartition("/")[2]]
    inner = [*node.get("anyOf", []), *([node["items"]] if isinstance(node.get("items"), dict) else [])]
    return [name for branch in inner for name in _references(branch)]


def _table(group: dict[str, Any], definitions: dict[str, Any]) -> str:
    rows = ["| field | type | default | description |", "|---|---|---|---|"]
    for field, node in group.get("properties", {}).items():
        default = "*required*" if field in group.get("required", []) else _default(node)
        text = node.get("description") or " ".join(definitions[name].get("description", "") for name in _references(node))
        rows.append(f"| `{field}` | {_type(node)} | {default} | {' '.join(text.split()).replace('|', chr(92) + '|')} |")
    return "\n".join(rows) + "\n" if group.get("properties") else "No fields: write `{}`.\n"


def _default(node: dict[str, Any]) -> str:
    value = node.get("default")
    return "" if value in (None, [], {}) else f"`{_flow(value)}`"


def _type(node: dict[str, Any]) -> str:
    if "$ref" in node:
        return "group"
    if node.get("x-kubernetes-int-or-string"):
        return "number or text"
    if "anyOf" in node:
        return " or ".join(dict.fromkeys(_type(branch) for branch in node["anyOf"] if branch.get("type") != "null"))
    if "enum" in node or "const" in node:
        return " \\| ".join(f"`{_flow(value)}`" for value in node.get("enum", [node.get("const")]))
    if node.get("type") == "array":
        inner = node.get("items") or node["prefixItems"][0]
        return f"list of {_type(inner)}" + (f", {node['maxItems']} of them" if "prefixItems" in node else "")
    if node.get("type") == "object":
        values = node.get("additionalProperties")
        return f"mapping to {_type(values)}" if isinstance(values, dict) and values else "mapping"
    names = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false"}
    return names.get(node.get("type", ""), "any") + _bounds(node)


def _bounds(node: dict[str, Any]) -> str:
    words = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    found = [f"{sign} {node[key]:g}" for key, sign in words.items() if key in node]
    return f" ({', '.join(found)})" if found else ""


def _flow(value: Any) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000)
    return text.strip().removesuffix("...").strip()


def main(folder: str) -> None:
    """Write all pages into a folder."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (target / name).write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
