"""One run handed from layout to layout: 1, 2, 4, 3 and 1 workers, all ZeRO stages, with optimizer offload and without.

`python benchmarks/checkpoint_elastic.py`: writes docs/benchmarks/checkpoint_elastic.md. The layouts are those of the test.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.checkpoints import stop_after
from tests.integration.training.conftest import Material
from tests.integration.training.test_elastic import LEGS, METHODS, STEPS, request_of
from tests.models import write_model, write_text
from tests.ranks import results_in_ranks
from training_cases import write_page

from tuneyard.training import train

AIM = 1e-3


def main() -> None:
    lines = ["| steps | workers | ZeRO | offloaded | " + " | ".join(f"{name}, largest difference" for name in METHODS) + " |"]
    lines.append("|---" * (4 + len(METHODS)) + "|")
    worst = 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = write_text(folder / "text.jsonl")
        material = Material(write_model(folder / "model"), text, text, text)
        whole = {method: train(request_of(folder / f"{method}-whole", material, task, **LEGS[0])) for method, task in METHODS.items()}
        for number, leg in enumerate(LEGS):
            requests = [request_of(folder / method, material, task, **leg) for method, task in METHODS.items()]
            if number:
                for method in METHODS:
                    stop_after(3 * number, folder / method / "out")
            results = results_in_ranks(requests, workers=leg["workers"])
            cells = []
            for method, result in zip(METHODS, results, strict=True):
                assert result.resumed_from == 3 * number
                pairs = list(zip(result.losses, whole[method].losses, strict=True))[3 * number :]
                cells.append(max(abs(ours - theirs) / abs(theirs) for ours, theirs in pairs))
            worst = max(worst, *cells)
            offloaded = ", ".join(name for name in ("optimizer", "parameters") if f"offload_{name}" in leg) or "nothing"
            row = [f"{3 * number + 1}-{STEPS}", leg["workers"], leg["zero"], offloaded, *(f"{cell:.1e}" for cell in cells)]
            lines.append("| " + " | ".join(map(str, row)) + " |")
    lines += [
        "",
        "Each row goes on from the checkpoint of the row above, after its first 3 steps, to the end. Difference: relative, of a step's",
        f"loss from that of a run that one worker did alone, fp32; at most **{worst:.1e}**, asked for: {AIM:g}.",
    ]
    write_page("checkpoint_elastic", "From layout to layout", lines)
    if worst > AIM:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
