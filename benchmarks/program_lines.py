"""Lines that a user writes for each example of docs/program.md, beside the same with a loop of plain torch: `make bench` writes
docs/benchmarks/program_lines.md.

Lines of code alone count: no blank lines, comments or docstrings. Both are run with two processes on the made data: the plain one also
after a stop in the middle, whose losses must be those of a run without one.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROGRAMS = ROOT / "jobspecs" / "programs"
LOOP = ROOT / "benchmarks" / "plain_torch" / "loop.py"
EXAMPLES = {"clicks": ("Clicks", 128), "captions": ("Captions", 32), "denoising": ("Denoising", 32), "sines": ("Sines", 16)}
STEPS, STOP = 20, 10
OUT = ROOT / "docs" / "benchmarks" / "program_lines.md"


def lines_of(path: Path) -> int:
    """Lines with code on them."""
    tree = ast.parse(path.read_text())
    words: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            words |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return sum(
        bool(line.strip()) and not line.strip().startswith("#") and number not in words
        for number, line in enumerate(path.read_text().splitlines(), start=1)
    )


def plain_losses(name: str, data: Path, out: Path, steps: int) -> list[float]:
    kind, batch = EXAMPLES[name]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(LOOP)]
    options = ["--folder", str(PROGRAMS), "--steps", str(steps), "--batch", str(batch), "--every", str(STOP)]
    subprocess.run([*torchrun, f"{name}:{kind}", str(data), str(out), *options], check=True, capture_output=True, timeout=300)
    losses: list[float] = json.loads((out / "losses.json").read_text())
    return losses


def run_plain(name: str, folder: Path) -> tuple[list[float], list[float]]:
    """Losses of a run, and of one that was stopped half-way and went on."""
    subprocess.run([sys.executable, str(PROGRAMS / "made_data.py"), name, str(folder)], check=True)
    data = folder / f"{name}.parquet"
    whole = plain_losses(name, data, folder / "whole", STEPS)
    plain_losses(name, data, folder / "stopped", STOP)
    return whole, plain_losses(name, data, folder / "stopped", STEPS)


def page(rows: list[str], loop: int) -> str:
    return "\n".join(
        [
            "# Lines of a training: a program beside plain torch",
            "",
            "`python benchmarks/program_lines.py`, 2026-11-25, 2 cores, no GPU. It counts lines of code, without blank lines,",
            "comments and docstrings. Model, batches, loss and predictions are the same file in both columns. With plain torch a user",
            f"writes a loop besides (`benchmarks/plain_torch/loop.py`, {loop} lines): several processes, a shuffled order, checkpoints,",
            "resume, evaluation, predictions. It serves all four: a second training costs a user of plain torch no second loop.",
            "",
            "Loss of plain torch: first and last of 20 steps. Stopped: largest difference of a loss after a stop at step 10.",
            "",
            "| example | lines with Tuneyard | lines with plain torch | loss of plain torch | stopped |",
            "|---|---|---|---|---|",
            *rows,
            "",
            "The loop has DDP alone. ZeRO, tensor parallelism, offloading, checkpoints for other layouts and machines, asynchronous",
            "and fenced commits, retries, MFU, the report, data in storage and rows that do not fit in memory are in Tuneyard,",
            "and are not counted.",
            "",
        ]
    )


def main() -> None:
    loop = lines_of(LOOP)
    rows = []
    for name in EXAMPLES:
        with tempfile.TemporaryDirectory() as folder:
            whole, resumed = run_plain(name, Path(folder))
        own = lines_of(PROGRAMS / f"{name}.py")
        difference = max(abs(a - b) for a, b in zip(whole, resumed, strict=True))
        rows.append(f"| {name} | {own} | {own + loop} | {whole[0]:.3f} -> {whole[-1]:.3f} | {difference:.1e} |")
        print(rows[-1], flush=True)
    OUT.write_text(page(rows, loop))


if __name__ == "__main__":
    main()
