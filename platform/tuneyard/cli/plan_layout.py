"""The layout of a plan in words, the same in the sentence, the table and the picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def layout_text(row: Mapping[str, Any]) -> str:
    """`zero 2, tensor 4, recompute`: what differs from plain data parallelism."""
    strategy = row["strategy"]
    parts = [f"zero {strategy['zero']}"]
    parts += [f"tensor {strategy['tensorParallel']}"] if strategy["tensorParallel"] > 1 else []
    parts += ["tokens in slices"] if strategy["sequenceParallel"] else []
    parts += [f"rows over {strategy['contextParallel']}"] if strategy["contextParallel"] > 1 else []
    parts += ["inside hosts"] if strategy["shardWithin"] == "host" else []
    parts += [f"gradients in {strategy['quantisedAllReduce']}"] if strategy["quantisedAllReduce"] != "none" else []
    parts += ["recompute"] if strategy["recompute"] else []
    parts += [f"{what} on {where}" for what, where in strategy["offload"].items() if where != "none"]
    return ", ".join(parts)
