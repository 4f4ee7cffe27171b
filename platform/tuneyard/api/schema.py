"""The models as CustomResourceDefinitions for API servers, and as one JSON schema for editors.

`python -m tuneyard.api.schema FOLDER` writes one CRD file per kind, and the JSON schema, into a folder.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic.json_schema import GenerateJsonSchema, models_json_schema
from pydantic_core import core_schema

from tuneyard.api.attempt_report import AttemptReport
from tuneyard.api.base import API_VERSION, DNS_LABEL, NAME_DESCRIPTION, Fields, Resource
from tuneyard.api.loading import KINDS
from tuneyard.api.schema_structural import PARTS, Schema, structural
from tuneyard.api.template_merge import TEMPLATED

_GROUP, _VERSION = API_VERSION.split("/")


@dataclass(frozen=True)
class Column:
    """A column that `kubectl get` prints."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False
    """Shown by `kubectl get -o wide` only."""

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "jsonPath": self.path, "type": self.type, **({"priority": 1} if self.wide else {})}


_AGE = Column("Age", ".metadata.creationTimestamp", "date")
HOLDS = ".status.attempts[?(@.cleaned==false)].placement.cluster"
"""The cluster of the oldest attempt that is not cleaned up: it holds GPUs. Of several results, API servers print the first."""
_METADATA = {"Namespace": "namespace", "Created": "creationTimestamp", "Deleting": "deletionTimestamp"}
"""Columns that spare programs the metadata of each object, which are most of a table's bytes."""
_SHORT_NAMES = {"JobSpec": "tyj", "Cluster": "tyc", "Team": "tyt", "Schedule": "tys", "ModelTemplate": "tym", "AttemptReport": "tya"}
_CLUSTER_SCOPED = ("Cluster", "Team", "ModelTemplate")
_COLUMNS: dict[str, tuple[Column, ...]] = {
    "JobSpec": (
        Column("Phase", ".status.phase"),
        Column("Cluster", ".status.placement.cluster"),
        Column("SKU", ".status.placement.sku"),
        Column("GPUs", ".status.placement.gpus", "integer"),
        Column("Progress", ".status.progress.summary"),
        Column("MFU", ".status.progress.mfu", "number"),
        Column("Team", ".spec.team", wide=True),
        Column("Priority", ".spec.priority", wide=True),
        Column("GPU hours", ".status.usage.gpuHours", "number", wide=True),
        Column("Suspended", ".spec.suspend", "boolean", wide=True),
        Column("Cancelled", ".spec.cancelled", "boolean", wide=True),
        Column("Starts", ".status.expectedStart", wide=True),
        Column("Ended", ".status.finishedAt", wide=True),
        Column("Message", ".status.message", wide=True),
        Column("Holds", HOLDS, wide=True),
        *(Column(name, f".metadata.{field}", wide=True) for name, field in _METADATA.items()),
    ),
    "Cluster": (
        Column("Healthy", ".status.healthy", "boolean"),
        Column("Cordoned", ".spec.cordoned", "boolean"),
        Column("Free", ".status.free"),
        Column("Heartbeat", ".status.heartbeat", "date"),
    ),
    "Team": (Column("Weight", ".spec.weight", "number"), Column("GPU hours", ".status.gpuHoursUsed", "number")),
    "Schedule": (
        Column("Cron", ".spec.cron"),
        Column("Zone", ".spec.timeZone"),
        Column("Suspended", ".spec.suspend", "boolean"),
        Column("Last", ".status.lastRun", "date"),
        Column("Next", ".status.nextRun", "date"),
        Column("Regressed", '.status.conditions[?(@.type=="Regressed")].status'),
    ),
    "ModelTemplate": (Column("Description", ".spec.description"),),
    "AttemptReport": (Column("Phase", ".status.phase"), Column("Progress", ".status.progress.summary"), Column("Stage", ".status.stage")),
}
MEMBER_KINDS: dict[str, type[Resource]] = {"AttemptReport": AttemptReport}
"""Kinds whose objects are on members; the chart `tuneyard-member` has their CRDs."""


class _WithFactoryDefaults(GenerateJsonSchema):
    """pydantic omits defaults that a factory makes. API servers need them to fill in the fields below."""

    def get_default_value(self, schema: core_schema.WithDefaultSchema) -> Any:
        if "default_factory" in schema and not schema.get("default_factory_takes_data"):
            value = schema["default_factory"]()  # type: ignore[call-arg]  # the other form takes data, and was excluded
            return value.to_yaml_dict() if isinstance(value, Fields) else value
        return super().get_default_value(schema)


def columns_of(kind: str) -> tuple[Column, ...]:
    """The columns of a kind, without its name and age."""
    return _COLUMNS[kind]


def crd(kind: str) -> Schema:
    """The CustomResourceDefinition (apiextensions.k8s.io/v1) of one kind."""
    schema = structural(defaults_schema(kind))
    schema["properties"]["metadata"] = {
        "type": "object",  # for the name, the API server allows only limits here, not even a description
        "properties": {"name": {"type": "string", "pattern": DNS_LABEL, "maxLength": 63, "description": NAME_DESCRIPTION}},
    }
    for name in ("apiVersion", "kind"):
        schema["properties"][name] = {"description": schema["properties"][name]["description"], "type": "string"}
    schema["required"] = ["spec"] if kind in KINDS else []
    version: Schema = {"name": _VERSION, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    if "status" in schema["properties"]:
        version["subresources"] = {"status": {}}
    version["additionalPrinterColumns"] = [column.to_dict() for column in (*_COLUMNS[kind], _AGE)]
    plural = f"{kind.lower()}s"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{_GROUP}"},
        "spec": {
            "group": _GROUP,
            "scope": "Cluster" if kind in _CLUSTER_SCOPED else "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [_SHORT_NAMES[kind]],
                "categories": ["tuneyard"],
            },
            "versions": [version],
        },
    }


def crds_yaml() -> str:
    """The CRDs of all kinds as one YAML stream."""
    return "---\n".join(_yaml(crd(kind)) for kind in KINDS)


def json_schema(kind: str | None = None) -> Schema:
    """The JSON schema (draft 2020-12) of one kind, or of all of them. Raises KeyError on an unknown kind."""
    models = [KINDS[kind]] if kind is not None else list(KINDS.values())
    references, definitions = models_json_schema([(model, "validation") for model in models], by_alias=True)
    for model in models:
        definitions["$defs"][model.__name__]["required"] = ["apiVersion", "kind", "metadata", "spec"]
    _let_templates_give(definitions["$defs"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Tuneyard {kind or 'files'}",
        "oneOf": [references[model, "validation"] for model in models],
        **definitions,
    }


def _let_templates_give(definitions: dict[str, Schema]) -> None:
    """Required fields that a template may give become required only in jobs without a template."""
    names = {kind: model.__name__ for kind, model in TEMPLATED.items()}
    needed = {kind: definitions[name].pop("required", []) for kind, name in names.items() if name in definitions}
    for name in PARTS:
        definitions.get(name, {}).pop("required", None)
    if needed:
        tasks = {kind: {"required": required} for kind, required in needed.items()}
        then = {"properties": {"tasks": {"items": {"properties": tasks}}}}
        definitions["Job"] |= {"if": {"not": {"required": ["template"]}}, "then": then}


def defaults_schema(kind: str) -> Schema:
    """The JSON schema of one kind, with the defaults that pydantic omits."""
    return {**KINDS, **MEMBER_KINDS}[kind].model_json_schema(by_alias=True, schema_generator=_WithFactoryDefaults)


def _yaml(value: Schema) -> str:
    plain = json.loads(json.dumps(value))  # without this, parts that the schema uses twice become anchors
    return str(yaml.dump(plain, Dumper=yaml.CSafeDumper, sort_keys=False, width=120))


def main(folder: str) -> None:
    """Write `<plural>.yaml` of every kind and `tuneyard.schema.json` into a folder."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    for kind in (*KINDS, *MEMBER_KINDS):
        (target / f"{kind.lower()}s.yaml").write_text(_yaml(crd(kind)))
    (target / "tuneyard.schema.json").write_text(json.dumps(json_schema(), indent=2) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
