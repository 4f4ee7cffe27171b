"""PEFT adapters that an engine can apply on top of the model's weights, and those that have to be merged first."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuneyard.api import Adapter, BadInput

CONFIG = "adapter_config.json"
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # what vLLM compiles its LoRA kernels for


@dataclass(frozen=True)
class LoraAdapter:
    """A LoRA adapter in a local folder. `engine_rank`: the smallest rank of the engine's kernels that holds it."""

    folder: str
    rank: int
    engine_rank: int
    targets: tuple[str, ...]
    """Names of the modules it adapts; empty: a pattern that is not taken apart here."""

    def as_trained(self) -> Adapter | None:
        """The adapter as a train task would ask for it, for counting FLOPs; None where its targets are a pattern."""
        return Adapter(rank=self.rank, targets=list(self.targets)) if self.targets else None


def read_adapter(folder: Path) -> LoraAdapter:
    """The adapter in `folder`. Raises BadInput where there is none, or where vLLM cannot apply it as it is."""
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"{folder} holds no adapter: {CONFIG} cannot be read ({error})", "give a folder that PEFT saved") from error
    reasons = _unsupported(config)
    if reasons:
        raise BadInput(
            f"the engine cannot apply the adapter in {folder}: {'; '.join(reasons)}",
            "set merge: true in the method of the train task, and score its merged weights: model: {from: TASK, path: merged}",
        )
    rank = max([int(config["r"]), *(int(r) for r in (config.get("rank_pattern") or {}).values())])
    return LoraAdapter(str(folder), rank, next(r for r in _RANKS if r >= rank), _targets(config))


def _targets(config: dict[str, Any]) -> tuple[str, ...]:
    targets = config.get("target_modules")
    if targets == "all-linear":
        return ("all-linear",)
    return tuple(sorted(targets)) if isinstance(targets, list) else ()


def _unsupported(config: dict[str, Any]) -> list[str]:
    reasons = []
    if str(config.get("peft_type")).upper() != "LORA":
        reasons.append(f"it is of the kind {config.get('peft_type')}, not LORA")
        return reasons
    if config.get("use_dora"):
        reasons.append("it is a DoRA adapter")
    if config.get("modules_to_save"):
        reasons.append(f"it replaces whole modules ({', '.join(config['modules_to_save'])})")
    if config.get("bias", "none") != "none" or config.get("lora_bias"):
        reasons.append("it carries biases")
    if int(config.get("r", 0)) > _RANKS[-1]:
        reasons.append(f"its rank {config['r']} is above {_RANKS[-1]}")
    return reasons
