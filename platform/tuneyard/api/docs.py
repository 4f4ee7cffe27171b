"""The reference pages, generated from the models and the rules: `python -m tuneyard.api.docs docs/reference` writes them.

A test fails if a committed page differs from the output of this module.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from tuneyard.api.base import API_VERSION
from tuneyard.api.docs_kinds import KIND_TEXTS
from tuneyard.api.limits import LARGEST_INTEGER, LARGEST_NUMBER
from tuneyard.api.loading import KINDS
from tuneyard.api.quantities import SIZE_PATTERN, UNITS, size_text
from tuneyard.api.resuming import EFFECTS, Effect
from tuneyard.api.rules_case import Fix, Rule
from tuneyard.api.rules_examples import task_with
from tuneyard.api.rules_table import RULES
from tuneyard.api.schema import MEMBER_KINDS, crd, defaults_schema
from tuneyard.metrics import FIGURES, METRICS

_GENERATED = "<!-- Written by `make docs` from the code: change the code, not this page. -->\n"
_SCOPES = {"Cluster": "cluster", "Namespaced": "namespace"}

_EFFECT_TEXTS = {
    Effect.REFUSED: "The state in the checkpoint belongs to the task as it was. Restore the value, or start again in another output.",
    Effect.BY_ROWS: "Training continues if the rows have the same tokens in the same order. Otherwise it is refused, with the reason.",
    Effect.NEXT_STEP: "A warning says the old value, the new value and the step. `tuneyard run` and the hub accept the change too.",
    Effect.NOTHING: "The value is taken without a word.",
}


def pages() -> dict[str, str]:
    """File name -> content of every reference page."""
    kinds = (*KINDS, *MEMBER_KINDS)
    return {
        "README.md": index_page(kinds),
        **{f"{kind.lower()}.md": kind_page(kind) for kind in kinds},
        "combinations.md": combinations_page(),
        "resuming.md": resuming_page(),
        "metrics.md": metrics_page(),
    }


def index_page(kinds: Iterable[str]) -> str:
    """A table with one row per kind."""
    parts = [
        "# Reference\n",
        _GENERATED,
        f"The kinds of `{API_VERSION}`. All are Kubernetes objects; `kubectl explain jobspec.spec` shows the same descriptions.\n",
        "| kind | short | scope | what it is |",
        "|---|---|---|---|",
    ]
    for kind in kinds:
        names, scope = crd(kind)["spec"]["names"], crd(kind)["spec"]["scope"]
        about = defaults_schema(kind)["description"].strip()
        parts.append(f"| [{kind}]({kind.lower()}.md) | `{names['shortNames'][0]}` | {_SCOPES[scope]} | {about} |")
    parts.append(
        "\nAlso: [metrics](metrics.md), [combinations that cannot work](combinations.md), [changes on resume](resuming.md),\n"
        "[values of the charts](charts.md), [architectures](models.md): behaviour of each of transformers' causal models;\n"
        "[chat templates](templates.md) likewise; [forms of rows](forms.md) of exporters and data sets.\n"
    )
    return "\n".join(parts)


def kind_page(kind: str) -> str:
    """All fields of a kind, in one table per group: people write `spec`, and the hub reports `status`."""
    schema = defaults_schema(kind)
    text = KIND_TEXTS[kind]
    columns = crd(kind)["spec"]["versions"][0]["additionalPrinterColumns"]
    shown = ", ".join(column["name"] for column in columns if "priority" not in column)
    wide = ", ".join(column["name"] for column in columns if "priority" in column)
    parts = [f"# {kind}: all fields\n", _GENERATED, f"{text.about}\n"]
    if text.example:
        parts.append(f"```yaml\n{text.example}```\n")
    parts += [
        f"`kubectl get {kind.lower()}s` shows {shown}{f'; with `-o wide` also {wide}' if wide else ''}.",
        "Fields without a default and not marked *required* may be left out.\n",
    ]
    groups = schema["properties"]
    seen = {"Job"} if kind == "Schedule" else set()
    for path in ("spec", "status"):
        for name in _references(groups.get(path, {})):
            for inner, group in _groups(schema, name, path, seen):
                parts.append(f"## `{inner}`\n\n{group['description'].strip()}\n")
                parts.append(_table(group, schema["$defs"]))
    return "\n".join(parts)


def metrics_page() -> str:
    """Every metric that a score task may ask for, with its figures."""
    parts = [
        "# Metrics of score tasks\n",
        _GENERATED,
        "`score.metrics` of a [JobSpec](jobspec.md) names them; `metrics.json`, the report and `tuneyard status` have their figures.",
        "Of several references of a row the closest to the output counts. A metric leaves out rows without its inputs.\n",
        "| metric | what it is | needs of a row | column of the output |",
        "|---|---|---|---|",
    ]
    for metric in METRICS.values():
        column = f"`{metric.name}`" if metric.per_row is not None else ""
        parts.append(f"| `{metric.name}` | {metric.description} | {', '.join(sorted(metric.needs))} | {column} |")
    parts += ["", "| figure | title in the report | better | |", "|---|---|---|---|"]
    for figure in FIGURES.values():
        better = "higher" if figure.higher_is_better else "lower"
        parts.append(f"| `{figure.name}` | {figure.title} | {better} | {figure.description} |")
    return "\n".join(parts) + "\n"


def resuming_page() -> str:
    """What a resume does with each field of a train task that has changed."""
    parts = [
        "# Changes on resume\n",
        _GENERATED,
        "What happens where a field of a train task has another value than in the attempt before, in the same output\n"
        "([checkpoints](../checkpoints.md)). `*` stands for each part of a mixture, or for the kind of adapter. A task that has succeeded\n"
        "goes on only if it has more `steps` or `epochs`.\n",
    ]
    for effect, about in _EFFECT_TEXTS.items():
        fields = ", ".join(f"`{field}`" for field, found in EFFECTS.items() if found is effect)
        parts.append(f"## {effect[:1].upper()}{effect[1:]}\n\n{about}\n\n{fields}\n")
    return "\n".join(parts)


def combinations_page() -> str:
    """Every rule: the refused combination, the reason, and a combination that works."""
    parts = [
        "# Combinations that cannot work\n",
        _GENERATED,
        "These are refused before anything starts, by `tuneyard validate`, `plan` and `run` and by the hub, with the nearest",
        "combination that works. A setting left at `auto` never breaks a rule: the planner chooses around them.\n",
    ]
    for kind in ("train", "score", "rank"):
        parts.append(f"## In a {kind} task\n")
        if kind == "rank":
            parts.append(f"Beside these, as in a train task: {', '.join(f'[{r.id}](#{r.id})' for r in RULES if r.of_rankers)}.\n")
        for rule in RULES:
            if rule.kind == kind:
                parts.append(_rule_section(rule))
    return "\n".join(parts)


def _rule_section(rule: Rule) -> str:
    case = rule.example_case(task_with(rule))
    where = f" (on `{rule.example_device.sku}`)" if rule.example_device else ""
    where += f" (model type `{rule.example_model_type}`)" if rule.example_model_type else ""
    where += f" (head size {rule.example_head_size})" if rule.example_head_size else ""
    works = "\n".join(f"- {_settings(fix)}" for fix in rule.nearest(case)) or f"- {rule.remedy}"
    refused = f"{rule.refused[:1].upper()}{rule.refused[1:]}"
    return f"### {rule.id}\n\n{refused}: {rule.why}.\n\nRefused{where}: {_settings(rule.example)}\n\nWorks instead:\n\n{works}\n"


def _settings(fix: Fix) -> str:
    return ", ".join(f"no `{name}`" if value is None else f"`{name}: {_flow(value)}`" for name, value in fix.items())


def _groups(schema: dict[str, Any], name: str, path: str, seen: set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Groups of fields in the order in which a file nests them, each at its first path."""
    seen.add(name)
    group = schema["$defs"][name]
    yield path, group
    for field, node in group.get("properties", {}).items():
        for inner in _references(node):
            if inner not in seen and not _is_word(schema["$defs"][inner]):
                suffix = {"array": "[]", "object": ".NAME"}.get(node.get("type", ""), "")
                yield from _groups(schema, inner, f"{path}.{field}{suffix}", seen)


def _references(node: dict[str, Any]) -> list[str]:
    if "$ref" in node:
        return [node["$ref"].rpartition("/")[2]]
    inner = [*node.get("anyOf", []), *(node[key] for key in ("items", "additionalProperties") if isinstance(node.get(key), dict))]
    return [name for branch in inner for name in _references(branch)]


def _is_word(definition: dict[str, Any]) -> bool:
    """True for an enumeration, which is one value, not a group of fields."""
    return "enum" in definition


def _table(group: dict[str, Any], definitions: dict[str, Any]) -> str:
    rows = ["| field | type | default | description |", "|---|---|---|---|"]
    for field, node in group.get("properties", {}).items():
        default = "*required*" if field in group.get("required", []) else _default(node)
        text = node.get("description") or " ".join(definitions[name].get("description", "") for name in _references(node))
        rows.append(f"| `{field}` | {_type(node, definitions)} | {default} | {' '.join(text.split()).replace('|', chr(92) + '|')} |")
    return "\n".join(rows) + "\n" if group.get("properties") else "No fields: write `{}`.\n"


def _default(node: dict[str, Any]) -> str:
    value = node.get("default")
    if node.get("pattern") == SIZE_PATTERN and isinstance(value, int):
        return f"`{size_text(value)}`"
    return "" if value in (None, [], {}, "") else f"`{_flow(value)}`"


def _type(node: dict[str, Any], definitions: dict[str, Any]) -> str:
    if "$ref" in node:
        definition = definitions[node["$ref"].rpartition("/")[2]]
        return _type(definition, definitions) if _is_word(definition) else "group"
    if node.get("x-kubernetes-int-or-string"):
        return UNITS[node["pattern"]]
    if "anyOf" in node:
        branches = (branch for branch in node["anyOf"] if branch.get("type") != "null")
        return " or ".join(dict.fromkeys(_type(branch, definitions) for branch in branches))
    if "enum" in node or "const" in node:
        return " \\| ".join(f"`{_flow(value)}`" for value in node.get("enum", [node.get("const")]))
    if node.get("type") == "array":
        inner = node.get("items") or node["prefixItems"][0]
        return f"list of {_type(inner, definitions)}" + (f", {node['maxItems']} of them" if "prefixItems" in node else "")
    if node.get("type") == "object":
        values = node.get("additionalProperties")
        return f"mapping to {_type(values, definitions)}" if isinstance(values, dict) and values else "mapping"
    names = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false"}
    return names.get(node.get("type", ""), "any") + _bounds(node)


_OF_ALL = (LARGEST_INTEGER, LARGEST_NUMBER)
"""Limits of every number, which tables omit."""


def _bounds(node: dict[str, Any]) -> str:
    words = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    found = [f"{sign} {node[key]:g}" for key, sign in words.items() if key in node and abs(node[key]) not in _OF_ALL]
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
