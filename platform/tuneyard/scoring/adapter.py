"""PEFT adapters. LoRA adapters that vLLM supports are applied by the engine; all others must be merged first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuneyard.api import Adapter, BadInput
from tuneyard.catalog.adapter_files import WEIGHTS, adapter_config, check_adapter_files

MERGE = (
    "set merge: true in the method of the train task, and score its merged weights: model: {from: TASK, path: merged}; "
    "or merge the adapter (tuneyard merge), and score the merged model"
)
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # ranks of vLLM's compiled LoRA kernels


@dataclass(frozen=True)
class LoraAdapter:
    """A LoRA adapter in a local folder. `engine_rank`: the smallest rank of the engine's kernels that holds it."""

    folder: str
    rank: int
    engine_rank: int
    targets: tuple[str, ...]
    """Names of the adapted modules, such as q_proj."""

    @property
    def adapts_head(self) -> bool:
        return "lm_head" in self.targets

    def as_trained(self) -> Adapter:
        """The adapter in the form of a train task, for counting FLOPs."""
        return Adapter(rank=self.rank, targets=list(self.targets))


def read_adapter(folder: Path, base: Path | None = None) -> LoraAdapter:
    """The adapter in `folder`, for the model in `base`. Raises BadInput for a missing or damaged adapter, or one that vLLM cannot apply."""
    config = adapter_config(folder)
    reasons = _unsupported(config)
    if reasons:
        raise BadInput(
            f"the engine cannot apply the adapter in {folder}: {'; '.join(reasons)}",
            MERGE,
        )
    check_adapter_files(folder, base)
    rank = max([int(config["r"]), *(int(r) for r in (config.get("rank_pattern") or {}).values())])
    return LoraAdapter(str(folder), rank, next(r for r in _RANKS if r >= rank), _targets(folder, config))


def _targets(folder: Path, config: dict[str, Any]) -> tuple[str, ...]:
    """The adapted modules: from the list in the configuration; where it has a pattern, from the names of the weights."""
    targets = config.get("target_modules")
    if not isinstance(targets, list):
        from safetensors import safe_open

        with safe_open(folder / WEIGHTS, framework="numpy") as weights:
            targets = [name.split(".lora_")[0] for name in weights.keys() if ".lora_" in name]  # noqa: SIM118  # it is no dict
    return tuple(sorted({name.rsplit(".", 1)[-1] for name in targets}))


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
