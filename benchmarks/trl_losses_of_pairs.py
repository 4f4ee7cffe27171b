"""Losses of preference pairs beside TRL's DPOTrainer on the same rows: dense models, mixtures of experts, losses, layouts.

`python benchmarks/trl_losses_of_pairs.py`: a tiny random model of each architecture, 4 steps in fp32, gradients accumulated; writes
docs/benchmarks/trl_losses_of_pairs.md.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.progress import track

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.ranks.trl_losses import RATE, STEPS, WIDE, Compared, compare
from training_cases import write_page

Case = tuple[str, str, str, str]
"""Architecture, method, loss, layout."""
LAYOUTS: dict[str, dict[str, Any]] = {
    "one process": {},
    **{f"ZeRO {stage}": {"zero": stage} for stage in (1, 2, 3)},
    "tensorParallel 2": {"workers": 2, "tensor_parallel": 2},
    "tensorParallel 2, sequenceParallel, ZeRO 2": {"workers": 2, "tensor_parallel": 2, "sequence_parallel": True, "zero": 2},
    "contextParallel 2": {"workers": 2, "context_parallel": 2},
    "contextParallel 2, ZeRO 3": {"workers": 2, "context_parallel": 2, "zero": 3},
}
KINDS = ("llama", "qwen2", "qwen3", "mistral", "gemma2", "gemma3_text", "phi3", "gpt2", "mixtral", "qwen3_moe")


def main() -> None:
    cases: list[Case] = [(kind, method, "sigmoid", "one process") for kind in KINDS for method in ("full", "lora")]
    cases += [("llama", method, loss, "one process") for loss in ("hinge", "ipo") for method in ("full", "lora")]
    cases += [("llama", method, "sigmoid", layout) for method in ("full", "lora") for layout in list(LAYOUTS)[1:]]
    found = {case: _compared(*case) for case in track(cases, "models")}
    lines = [
        f"{STEPS} steps in fp32, micro-batches of 2 pairs, 4 of them accumulated, learning rate {RATE:g}; a random model of 2 layers,",
        "hidden width 64. The loss of mixtures of experts includes the router's loss, with a weight of 0.5. TRL trains in one",
        "process without DeepSpeed. In other layouts Llama has a hidden width of 320: DeepSpeed then cuts its head and embedding. The",
        "error is the largest relative difference of a step.",
        "",
        "| model | method | loss | layout | first loss, ours | TRL's | last loss, ours | TRL's | error |",
        "|---|---|---|---|---|---|---|---|---|",
        *(
            f"| {' | '.join(map(str, case))} | " + " | ".join(f"{loss:.7f}" for loss in each.ends) + f" | {each.error:.1e} |"
            for case, each in found.items()
        ),
        "",
        f"Largest error: {max(each.error for each in found.values()):.1e} (aim: 2e-6).",
    ]
    write_page("trl_losses_of_pairs", "Losses of preference pairs beside TRL's", lines)


def _compared(kind: str, method: str, loss: str, layout: str) -> Compared:
    shape: dict[str, Any] = WIDE if LAYOUTS[layout] else {}
    with tempfile.TemporaryDirectory() as folder:
        return compare(Path(folder), kind, objective="dpo", adapted=method == "lora", loss=loss, layout=LAYOUTS[layout], **shape)


if __name__ == "__main__":
    main()
