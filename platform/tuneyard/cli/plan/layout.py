"""The layout of a planned train task in words, in the sentence, the table and the picture alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def layout_text(row: Mapping[str, Any]) -> str:
    """The differences from a plan for one device that saves no memory: `zero 1, tensor 4, tokens in slices, recompute`."""
    strategy = row["strategy"]
    parts = [f"zero {strategy['zero']}"]
    parts += [f"tensor {strategy['tensorParallel']}"] if strategy["tensorParallel"] > 1 else []
    parts += ["tokens in slices"] if strategy["sequenceParallel"] else []
    parts += [f"rows over {strategy['contextParallel']}"] if strategy["contextParallel"] > 1 else []
    parts += ["inside hosts"] if strategy["shardWithin"] == "host" else []
    parts += [f"gradients in {strategy['quantisedAllReduce']}"] if strategy["quantisedAllReduce"] != "none" else []
    parts += ["recompute"] if strategy["recompute"] else []
    parts += ["compiled layers"] if strategy["compile"] == "layers" else []
    parts += [f"{what} on {where}" for what, where in strategy["offload"].items() if where != "none"]
    return ", ".join(parts)
