"""A hash of the question of a row, by which the rows of two score tasks are recognised as the same."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import xxhash

if TYPE_CHECKING:
    from tuneyard.data.score_rows import ScoreRow


def row_hash(row: ScoreRow) -> int:
    """64 bits (XXH3) of prompt, system turn, tools and references, signed. Rows that cannot be read have the hash of an empty row."""
    asked = [row["prompt"], row["system"], row["tools"], list(row["references"])]
    return xxhash.xxh3_64_intdigest(json.dumps(asked, sort_keys=True, default=str).encode()) - 2**63
