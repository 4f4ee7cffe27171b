"""Names of tables in a ranker's state, the same for whole and sharded tables."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

PREFIX = "features.tables"
"""Prefix of tables within a ranker."""
_METHODS = ("begin",)
"""Methods of `WholeTables`, beside those of every module."""


def table_names(features: Sequence[str]) -> dict[str, str]:
    """Name of each feature's table within its module: that of the feature, unless torch reserves it."""
    taken, blank = set(features), nn.Module()
    names: dict[str, str] = {}
    for feature in features:
        name = feature
        while "." in name or name.startswith("_") or name in _METHODS or hasattr(blank, name) or (name in taken and name != feature):
            name = "feature_" + name.replace(".", "_")
        names[feature] = name
        taken.add(name)
    return names
