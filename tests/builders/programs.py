"""Requests that train by a program: those of jobspecs/programs on their made data, or a small one of the test's own."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import pyarrow.parquet as pq
from tests.builders.models import train_request

from tuneyard.api import TrainTask
from tuneyard.planning import Plan
from tuneyard.training import TrainRequest

EXAMPLES = Path(__file__).parents[2] / "jobspecs" / "programs"
_NAMES = ("clicks", "captions", "sines", "denoising", "ranker", "walks", "federated", "summaries", "photos")
CLASSES = {name: name.capitalize() for name in _NAMES}

LINE = """
    import torch
    from torch import nn


    class Line:
        def model(self):
            return nn.Linear(2, 1)

        def collate(self, rows):
            return {"x": torch.tensor([row["x"] for row in rows]), "y": torch.tensor([row["y"] for row in rows])}

        def loss(self, model, batch):
            return (model(batch["x"])[:, 0] - batch["y"]).square().mean()

        def predict(self, model, batch):
            return [{"y": float(each)} for each in model(batch["x"])[:, 0]]
"""
"""The smallest program: a straight line through rows of x (two numbers) and y."""


def write_program(folder: Path, source: str = LINE, *, name: str = "line", **changes: str) -> Path:
    """Write a module and 64 rows of data into a folder. `changes`: function -> its body, in place of that of LINE."""
    folder.mkdir(parents=True, exist_ok=True)
    text = dedent(source)
    for function, body in changes.items():
        head, _, rest = text.partition(f"    def {function}(")
        signature, _, tail = rest.partition("\n")
        kept = tail.partition("\n    def ")
        text = f"{head}    def {function}({signature}\n        {body}\n" + (f"\n    def {kept[2]}" if kept[2] else "")
    (folder / f"{name}.py").write_text(text)
    rows = [{"x": [i % 8 / 8, i // 8 / 8], "y": 2.0 * (i % 8) / 8 - i // 8 / 8 + 0.5} for i in range(64)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def program_task(program: str, folder: Path, source: Path, **changes: Any) -> TrainTask:
    """A task of 6 steps of 8 rows; `changes` are fields of the JobSpec's train task."""
    fields: dict[str, Any] = {
        "program": program,
        "programDir": str(folder),
        "data": {"source": str(source)},
        "optimizer": {"learningRate": 1e-2, "schedule": "constant", "warmup": 0},
        "batch": {"global": 8},
        "steps": 6,
        "checkpoint": {"everySteps": 100},
    }
    return TrainTask.model_validate({**fields, **changes})


def program_request(folder: Path, task: TrainTask, plan: dict[str, Any] | None = None) -> TrainRequest:
    """A request whose output and scratch lie in `folder`. The plan: one worker, micro-batches of 2, unless changed."""
    workers = (plan or {}).get("workers", 1)
    shape = {"sku": "cpu", "workers": 1, "zero": 0, "precision": "fp32", "attention": "sdpa", "micro_batch": 2}
    layout: dict[str, Any] = {**shape, **(plan or {})}
    accumulation = task.batch.global_ // (layout["micro_batch"] * workers // layout.get("tensor_parallel", 1))
    return train_request(folder, task, Plan(grad_accum=accumulation, **layout), model_uri=task.model.name or "")


def line_request(folder: Path, program: Path, plan: dict[str, Any] | None = None, **changes: Any) -> TrainRequest:
    """Of the program that `write_program` wrote."""
    return program_request(folder, program_task("line:Line", program, program / "rows.jsonl", **changes), plan)


def example_data(name: str, folder: Path) -> Path:
    """The made data of an example, as a Parquet file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.parquet"
    if not path.exists():
        pq.write_table(made_data().MADE[name](), path)
    return path


def example_request(folder: Path, name: str, source: Path, plan: dict[str, Any] | None = None, **changes: Any) -> TrainRequest:
    return program_request(folder, program_task(f"{name}:{CLASSES[name]}", EXAMPLES, source, **changes), plan)


def made_data() -> ModuleType:
    spec = importlib.util.spec_from_file_location("made_data", EXAMPLES / "made_data.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["made_data"] = module
    spec.loader.exec_module(module)
    return module
