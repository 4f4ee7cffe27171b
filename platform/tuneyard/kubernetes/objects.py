"""Objects as JSON: their keys, their versions, and patches of one version alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Object = dict[str, Any]
Key = tuple[str, str]
"""Namespace ("" for cluster-wide kinds) and name."""


def key_of(item: Mapping[str, Any]) -> Key:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def is_newer(item: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """Whether `item` is a later version of the object than `known`. Versions of one kind grow (KEP-5504)."""
    return _version(item) > _version(known)


def over(item: Mapping[str, Any], change: Mapping[str, Any]) -> Object:
    """`change` as a merge patch of this version of the object: the server answers with a Conflict once the object has another."""
    metadata = {"resourceVersion": item["metadata"]["resourceVersion"], **change.get("metadata", {})}
    return {**change, "metadata": metadata}


def _version(item: Mapping[str, Any]) -> int:
    version = item["metadata"].get("resourceVersion", "0")
    return int(version) if version.isascii() and version.isdigit() and len(version) <= 20 else 0
