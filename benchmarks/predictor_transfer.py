"""Transfer of the predictor: from old GPUs and old software to new ones, and from small runs to large ones, beside the planner alone.

predictor.py writes the table. This file alone prints it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from scipy.stats import kendalltau  # noqa: E402 -- found by the line above

from tuneyard.tuning import Predictor, describe  # noqa: E402

SPEED = "tokens_per_sec_per_gpu"
SMALL, LARGE = 64, 128
"""GPUs of a small run at most, and of a large one at least."""
FEWEST = 20
"""Runs to predict below which an order says nothing."""
COLUMNS = [
    *("from", "to", "runs of history", "predicted runs", "Kendall with history", "Kendall of the planner alone"),
    *("median error with history", "median error of the planner alone", "by history"),
]
Which = Callable[[pd.DataFrame], pd.Series]


def of(source: str, of_gpu: str = "") -> Which:
    return lambda rows: (rows.source == source) & rows.gpu_type.fillna("").str.contains(of_gpu)


def small(which: Which) -> Which:
    return lambda rows: which(rows) & (rows.gpus <= SMALL)


def large(which: Which) -> Which:
    return lambda rows: which(rows) & (rows.gpus >= LARGE)


def dated(which: Which, since: str, until: str = "9") -> Which:
    return lambda rows: which(rows) & (rows.date.fillna("") >= since) & (rows.date.fillna("") < until)


PLAYBOOK, FOUNDRY, NVIDIA, DGXC = (of(name) for name in ("hf-ultrascale-playbook", "llm-foundry", "megatron-bridge", "dgxc-benchmarking"))
TRANSFERS: list[tuple[str, str, Which, Which]] = [
    ("nanotron, up to 64 H100", "128 and more", small(PLAYBOOK), large(PLAYBOOK)),
    ("BigScience, up to 64 GPUs", "128 and more", small(of("bigscience")), large(of("bigscience"))),
    ("LLM Foundry, up to 64 GPUs", "128 and more", small(FOUNDRY), large(FOUNDRY)),
    ("DGX Cloud, up to 64 GPUs", "128 and more", small(DGXC), large(DGXC)),
    ("Megatron Bridge, up to 64 GPUs", "128 and more", small(NVIDIA), large(NVIDIA)),
    (
        "all sources, up to 64 GPUs",
        "all sources, 128 and more",
        small(lambda rows: rows.source != ""),
        large(lambda rows: rows.source != ""),
    ),
    ("LLM Foundry on A100", "LLM Foundry on H100", of("llm-foundry", "A100"), of("llm-foundry", "H100")),
    ("BigScience on V100", "BigScience on A100", of("bigscience", "V100"), of("bigscience", "A100")),
    ("Megatron Bridge on H100", "Blackwell (B200, B300, GB200, GB300)", of("megatron-bridge", "H100"), of("megatron-bridge", "B[0-9]00")),
    (
        "all sources on A100 and H100",
        "all sources on Blackwell",
        lambda rows: rows.gpu_type.fillna("").str.contains("A100|H100"),
        lambda rows: rows.gpu_type.fillna("").str.contains("B[0-9]00"),
    ),
    ("Megatron Bridge until April 2026", "since May 2026", dated(NVIDIA, "0", "2026-05"), dated(NVIDIA, "2026-05")),
    (
        "all sources until 2025",
        "all sources of 2026",
        dated(lambda rows: rows.source != "", "0", "2026"),
        dated(lambda rows: rows.source != "", "2026"),
    ),
]


def measured(rows: pd.DataFrame) -> pd.DataFrame:
    """A line for each transfer, over the runs that worked and of which the planner has an estimate."""
    lines = []
    for known, asked, history_of, wishes_of in TRANSFERS:
        history, wishes = rows[history_of(rows)], rows[wishes_of(rows) & (rows.status == "ok") & (rows[SPEED] > 0)]
        described = describe(wishes)
        planner = described.step_tokens / described.planner_step_s
        found = Predictor.fit(history).predict(wishes)
        predicted = found[SPEED].to_numpy()
        fine = np.isfinite(planner) & np.isfinite(predicted)
        if fine.sum() < FEWEST:
            continue
        truth = wishes[SPEED].to_numpy()[fine]
        lines.append(
            {"from": known, "to": asked, "runs of history": int((history[SPEED] > 0).sum()), "predicted runs": int(fine.sum())}
            | {"Kendall with history": _order(predicted[fine], truth), "Kendall of the planner alone": _order(planner[fine], truth)}
            | {
                "median error with history": _error(predicted[fine], truth),
                "median error of the planner alone": _error(planner[fine], truth),
                "by history": float(found.supported.to_numpy()[fine].mean()),
            }
        )
    return pd.DataFrame(lines, columns=COLUMNS)


def _order(predicted: np.ndarray, truth: np.ndarray) -> float:
    return float(kendalltau(predicted, truth).statistic)


def _error(predicted: np.ndarray, truth: np.ndarray) -> float:
    return float(np.median(np.abs(predicted / truth - 1)))


def table(found: pd.DataFrame) -> list[str]:
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---|---|" + "---:|" * (len(COLUMNS) - 2)]
    for each in found.to_dict("records"):
        cells = [str(each[name]) for name in COLUMNS[:4]]
        cells += (
            [f"{each[name]:.3f}" for name in COLUMNS[4:6]] + [f"{each[name]:.1%}" for name in COLUMNS[6:8]] + [f"{each['by history']:.0%}"]
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    rows = pd.read_csv(ROOT / "benchmarks" / "data" / "training_runs.csv.gz", low_memory=False)
    print("\n".join(table(measured(rows))))


if __name__ == "__main__":
    main()
