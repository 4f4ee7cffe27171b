"""One run handed from layout to layout: workers, ZeRO stages, offload, degrees of tensor parallelism; and one that is killed on each.

`python benchmarks/checkpoint_elastic.py`: writes docs/benchmarks/checkpoint_elastic.md. The layouts are those of the tests.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.builders.checkpoints import stop_after
from tests.builders.models import write_model, write_text
from tests.integration.training.conftest import Material
from tests.integration.training.test_elastic import EVERY, LEGS, METHODS, STEPS, request_of
from tests.integration.training.test_kills import MESHES, SHAPE
from tests.ranks.groups import results_in_ranks
from tests.ranks.kills import Case, run_case
from tests.ranks.tensor_training import LEGS as MESH_LEGS
from tests.ranks.tensor_training import METHODS as MESH_METHODS
from tests.ranks.tensor_training import mesh_request
from training_cases import write_page

from tuneyard.training import TrainRequest, train

AIM = 1e-3
KILLS = 6
Row = Callable[[dict[str, Any]], list[Any]]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = write_text(folder / "text.jsonl")
        material = Material(write_model(folder / "model"), text, text, text)

        def staged(where: Path, method: str, leg: dict[str, Any]) -> TrainRequest:
            return request_of(where, material, METHODS[method], **leg)

        def meshed(where: Path, method: str, leg: dict[str, Any]) -> TrainRequest:
            return mesh_request(where, material.model, text, steps=EVERY * len(MESH_LEGS), task=MESH_METHODS[method], **leg)

        stages, worst = _handed(folder / "stages", METHODS, LEGS, STEPS, staged, ["workers", "ZeRO", "offloaded"], _stage)
        meshes, most = _handed(folder / "meshes", MESH_METHODS, MESH_LEGS, EVERY * len(MESH_LEGS), meshed, ["tensor x data", "ZeRO"], _mesh)
        killed = run_case(Case(folder=str(folder / "killed"), plan=MESHES[-1], layouts=MESHES, shape=SHAPE, kills=KILLS, seed=7))
    lines = [
        *stages,
        "",
        f"Each row goes on from the checkpoint of the row above, after its first {EVERY} steps, to the end. Difference: relative, of a",
        f"step's loss from that of a run that one worker did alone, fp32; at most **{worst:.1e}**, asked for: {AIM:g}.",
        "",
        "## From mesh to mesh",
        "",
        *meshes,
        "",
        "`clipped` is plain SGD on gradients clipped to a norm of 0.05: a wrong norm shows in its losses, as it does not in Adam's.",
        f"At most **{most:.1e}**.",
        "",
        f"A run of 30 steps was killed with SIGKILL {killed.kills} times, one rank or all of them, {killed.in_saves} times in a save; each",
        f"attempt resumed on another mesh than the one before: {', '.join(map(_named, MESHES))}, in turn (tensor x data).",
        f"Its losses differ by at most **{killed.difference:.1e}** from those of a run that one worker did alone.",
    ]
    write_page("checkpoint_elastic", "From layout to layout", lines)
    if max(worst, most, killed.difference) > AIM:
        raise SystemExit(1)


def _handed(
    folder: Path,
    methods: Mapping[str, Any],
    legs: list[dict[str, Any]],
    steps: int,
    request: Callable[[Path, str, dict[str, Any]], TrainRequest],
    columns: list[str],
    cells_of: Row,
) -> tuple[list[str], float]:
    """The table of one run that is handed over `legs`, and the largest difference in it."""
    lines = ["| " + " | ".join(["steps", *columns, *(f"{name}, largest difference" for name in methods)]) + " |"]
    lines.append("|---" * (1 + len(columns) + len(methods)) + "|")
    worst = 0.0
    whole = {method: train(request(folder / f"{method}-whole", method, legs[0])) for method in methods}
    for number, leg in enumerate(legs):
        if number:
            for method in methods:
                stop_after(EVERY * number, folder / method / "out")
        results = results_in_ranks([request(folder / method, method, leg) for method in methods], workers=leg["workers"])
        cells = []
        for method, result in zip(methods, results, strict=True):
            assert result.resumed_from == EVERY * number
            pairs = list(zip(result.losses, whole[method].losses, strict=True))[EVERY * number :]
            cells.append(max(abs(ours - theirs) / abs(theirs) for ours, theirs in pairs))
        worst = max(worst, *cells)
        row = [f"{EVERY * number + 1}-{steps}", *cells_of(leg), *(f"{cell:.1e}" for cell in cells)]
        lines.append("| " + " | ".join(map(str, row)) + " |")
    return lines, worst


def _stage(leg: dict[str, Any]) -> list[Any]:
    offloaded = ", ".join(name for name in ("optimizer", "parameters") if f"offload_{name}" in leg) or "nothing"
    return [leg["workers"], leg["zero"], offloaded]


def _mesh(leg: dict[str, Any]) -> list[Any]:
    tensor = leg.get("tensor_parallel", 1)
    return [f"{tensor} x {leg['workers'] // tensor}", leg.get("zero", 0)]


def _named(leg: dict[str, Any]) -> str:
    mesh, zero = _mesh(leg)
    return f"{mesh} with ZeRO {zero}"


if __name__ == "__main__":
    main()
