"""What is generated in the charts: CRDs from the models, the dashboards, and docs/reference/charts.md from the values.

`python scripts/charts.py` (or `make charts`) writes them all; tests fail where a committed file is another.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from scripts.dashboards import DASHBOARDS, dashboard

from tuneyard.api.loading import KINDS
from tuneyard.api.schema import MEMBER_KINDS, crd
from tuneyard_operators.hub.metrics import Metrics

REPOSITORY = Path(__file__).parents[1]
CHARTS = REPOSITORY / "charts"
_KEEP = {"annotations": {"helm.sh/resource-policy": "keep"}, "labels": {"app.kubernetes.io/part-of": "tuneyard"}}


def generated() -> dict[Path, str]:
    """Path -> content of every generated file."""
    hub, member = CHARTS / "tuneyard-hub", CHARTS / "tuneyard-member"
    helps = {"up": "1 while Prometheus reaches it", **{each.name: each.documentation for each in Metrics().registry.collect()}}
    return {
        **{hub / "files" / "crds" / f"{kind.lower()}s.yaml": _crd_yaml(kind) for kind in KINDS},
        **{member / "files" / "crds" / f"{kind.lower()}s.yaml": _crd_yaml(kind) for kind in MEMBER_KINDS},
        **{hub / "files" / "dashboards" / f"{made.name}.json": json.dumps(dashboard(made, helps), indent=1) + "\n" for made in DASHBOARDS},
        REPOSITORY / "docs" / "reference" / "charts.md": _values_page(),
    }


def values_schema(chart: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((CHARTS / chart / "values.schema.json").read_text())
    return schema


def default_values(chart: str) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((CHARTS / chart / "values.yaml").read_text())
    return values


def leaves(schema: dict[str, Any], values: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Path, schema and default of every value that a person sets; a mapping with names of its own is one value."""
    for name, node in schema.get("properties", {}).items():
        inner = values.get(name) if isinstance(values, dict) else None
        if "properties" in node:
            yield from leaves(node, inner, f"{path}{name}.")
        else:
            yield f"{path}{name}", node, inner


def _crd_yaml(kind: str) -> str:
    definition = json.loads(json.dumps(crd(kind)))  # parts that the schema uses twice would become anchors otherwise
    definition["metadata"].update(_KEEP)
    return str(yaml.dump(definition, Dumper=yaml.CSafeDumper, sort_keys=False, width=120))


def _values_page() -> str:
    parts = ["# Values of the charts\n", "<!-- Written by `make charts` from values.yaml and values.schema.json: change those. -->\n"]
    for chart in ("tuneyard-hub", "tuneyard-member"):
        parts += [f"## {chart}\n", "| value | default | description |", "|---|---|---|"]
        for path, node, default in leaves(values_schema(chart), default_values(chart)):
            shown = "" if default in ("", [], {}, None) else f"`{json.dumps(default)}`"
            parts.append(f"| `{path}` | {shown} | {node['description']} |")
        parts.append("")
    return "\n".join(parts)


def main() -> None:
    for path, content in generated().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


if __name__ == "__main__":
    main()
