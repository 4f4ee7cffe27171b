"""Merges a cluster's pod template into a rendered pod: mappings by key, lists by the name of their items, as kubectl patches."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

_NAMED_BY = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
}


def merged_pod(pod: Mapping[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """`pod` (a pod template) with `template` merged over it. The template's first container is merged over every container of the pod."""
    if not template:
        return dict(pod)
    rest = copy.deepcopy(dict(template))
    containers = rest.get("spec", {}).pop("containers", [])
    result: dict[str, Any] = merged(pod, rest)
    if containers:
        over = {key: value for key, value in containers[0].items() if key != "name"}
        result["spec"]["containers"] = [merged(container, over) for container in result["spec"]["containers"]]
    return result


def merged(under: Any, over: Any, field: str = "") -> Any:
    """`over` merged over `under`: mappings and named lists are merged, plain lists are joined, and other values of `over` win."""
    if isinstance(under, Mapping) and isinstance(over, Mapping):
        keys = [*under, *(key for key in over if key not in under)]
        return {key: merged(under[key], over[key], key) if key in under and key in over else _one(under, over, key) for key in keys}
    if isinstance(under, list) and isinstance(over, list):
        return _merged_lists(under, over, _NAMED_BY.get(field))
    return copy.deepcopy(over)


def _one(under: Mapping[str, Any], over: Mapping[str, Any], key: str) -> Any:
    return copy.deepcopy(over[key] if key in over else under[key])


def _merged_lists(under: Sequence[Any], over: Sequence[Any], named_by: str | None) -> list[Any]:
    if named_by is None:
        return [*copy.deepcopy(list(under)), *(copy.deepcopy(item) for item in over if item not in under)]
    result = {item.get(named_by): copy.deepcopy(item) for item in under}
    for item in over:
        name = item.get(named_by)
        result[name] = merged(result[name], item) if name in result else copy.deepcopy(item)
    return list(result.values())
