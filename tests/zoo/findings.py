"""What was found about each architecture, and the file that keeps it: `tests/zoo/findings.jsonl`, one architecture a line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("findings.jsonl")
STEPS = 80
SAME = 2e-5
"""Two losses are the same up to this."""
PARTS = ("full", "packed", "lora")


@dataclass(kw_only=True)
class Outcome:
    """`status`: works, refused (with the words of the refusal), fails (with what is wrong), or not built (by transformers)."""

    status: str
    words: str = ""


@dataclass(kw_only=True)
class Findings:
    """What the table says about an architecture. Losses are differences, None where training did not come so far."""

    model_type: str
    model_class: str = ""
    parameters: int = 0
    sized: str = ""
    """Where the shape comes from: its own family, read off the built model, or the words of a refusal."""
    vllm: bool = False
    attention: str = ""
    full: Outcome | None = None
    packed: Outcome | None = None
    lora: Outcome | None = None
    first_loss: float | None = None
    """The first step's loss less the loss that transformers gives for the same rows one by one."""
    reload: float | None = None
    """The last held-out loss less the loss of the saved model, loaded by transformers."""
    stops: int | None = None
    exact: int | None = None
    """Of the 24 answers, by `model.generate` without being told an end token, and by `Generator`."""
    generator: int | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def read() -> dict[str, dict[str, Any]]:
    """By model type."""
    lines = FILE.read_text().splitlines() if FILE.exists() else []
    return {found["model_type"]: found for found in map(json.loads, lines)}


def keep(found: Mapping[str, Any]) -> None:
    """Put it into the file, instead of what was found about this architecture before; what the engine did stays, unless it is told anew."""
    everything, name = read(), str(found["model_type"])
    everything[name] = {key: value for key, value in everything.get(name, {}).items() if key == "engine"} | dict(found)
    FILE.write_text("".join(json.dumps(everything[name]) + "\n" for name in sorted(everything)))


def statuses(found: Mapping[str, Any]) -> tuple[str, ...]:
    """Of full training, packing and LoRA; empty where it did not come so far."""
    return tuple(str((found.get(name) or {}).get("status", "")) for name in PARTS)
