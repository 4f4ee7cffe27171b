"""Losses beside TRL's trainers on the same rows: dense models and mixtures of experts. Preference pairs: trl_losses_of_pairs.py.

`python benchmarks/trl_losses.py`: a tiny random model of each architecture, 4 steps in fp32, gradients accumulated; writes
docs/benchmarks/trl_losses.md.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from rich.progress import track

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.ranks.trl_losses import DENSE, EXPERTS, RATE, STEPS, Compared, compare, token_counts
from training_cases import write_page

_FIRST_TOKENS = ("gpt2", "clm")
"""Explained on the page, and checked: the ratio of the losses is that of the tokens."""


def main() -> None:
    cases = [(kind, objective) for kind in DENSE for objective in ("clm", "sft")]
    cases += [(kind, objective) for kind in EXPERTS for objective in ("clm", "sft")]
    found = {}
    for kind, objective in track(cases, "models"):
        with tempfile.TemporaryDirectory() as folder:
            found[kind, objective] = compare(Path(folder), kind, objective=objective)
    _check_first_tokens(found[_FIRST_TOKENS])
    lines = [
        f"{STEPS} steps in fp32, micro-batches of 2, 4 of them accumulated, learning rate {RATE:g}; a random model of 2 layers,",
        "hidden width 64. The loss of mixtures of experts includes the router's loss, with a weight of 0.5. clm: whole texts;",
        "sft: completions of prompts. The error is the largest relative difference of a step.",
        "",
        "| model | objective | first loss, ours | TRL's | last loss, ours | TRL's | error |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {kind} | {objective} | " + " | ".join(f"{loss:.7f}" for loss in each.ends) + f" | {each.error:.1e} |"
            for (kind, objective), each in found.items()
        ),
        "",
        f"Largest error: {max(each.error for case, each in found.items() if case != _FIRST_TOKENS):.1e} (aim: 2e-6), but for whole texts",
        "under GPT-2: transformers takes labels to be shifted by classes named ForCausalLM alone, and GPT-2's is named LMHeadModel.",
        "TRL's loss is divided by the first token of each text too, which nothing predicts.",
    ]
    write_page("trl_losses", "Losses beside TRL's", lines)


def _check_first_tokens(gpt2: Compared) -> None:
    tokens = token_counts()[:8]
    assert abs(gpt2.theirs[0] / gpt2.ours[0] - (sum(tokens) - len(tokens)) / sum(tokens)) < 1e-5


if __name__ == "__main__":
    main()
