"""What a verification found, one line for each thing that it looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "failed", "not checked"]


@dataclass(frozen=True)
class Finding:
    """`about`: files, signature, base, data, checkpoints, weights, log, or a stretch that was trained again."""

    about: str
    state: State
    words: str
