"""`tuneyard plan FILE --explain-parallel`: the tensor-parallel style of each weight of each train task's model, with its reason.

The model is built from its config.json on the meta device. This reads no weights, and loads torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

import typer
from typer.core import TyperCommand

from tuneyard.admission import model_origin
from tuneyard.api import BadInput, JobSpec, ModelRef, Task
from tuneyard.catalog import known_config
from tuneyard.cli.output import table_lines
from tuneyard.cli.plan.text import WIDTH
from tuneyard.extras import need
from tuneyard.runtime.models import read_config
from tuneyard.runtime.references import named_model

OPTION = "--explain-parallel"
OF_FILE = 0
"""Stands for the degree that the file names."""


class PlanCommand(TyperCommand):
    """The command, with an option whose number is optional."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """`--explain-parallel` alone means the degree of the file."""
        given = []
        for at, word in enumerate(args):
            given.append(word)
            if word == OPTION and not (at + 1 < len(args) and args[at + 1].lstrip("-").isdigit()):
                given.append(str(OF_FILE))
        return super().parse_args(ctx, given)


def explained(job: JobSpec, base_dir: Path, degree: int) -> list[dict[str, Any]]:
    """A row for each module with weights, and for each weight with its own style, of each train task's model.

    `degree`: ranks that share each weight; `OF_FILE`: as `strategy.tensorParallel` says. Raises BadInput where nothing can be cut.
    """
    need("train", OPTION)
    rows = [row for task in job.spec.tasks if task.train is not None for row in _of_task(job, task, base_dir, degree)]
    if not rows:
        raise BadInput("no train task of the file has a tensorParallel above 1", f"name a degree: {OPTION} 2")
    return rows


def _of_task(job: JobSpec, task: Task, base_dir: Path, degree: int) -> Iterator[dict[str, Any]]:
    assert task.train is not None
    degree = degree if degree != OF_FILE else task.train.layout.tensor_parallel
    if degree == 1:
        return
    if task.train.program is not None:
        raise BadInput(
            f"task {task.name} trains a program: plan does not run its code, which makes the model",
            f"plan without {OPTION}; tuneyard.parallel.explain_tensor_parallel explains a model that you make in Python",
        )
    from tuneyard.training.tensor_plan import config_from, plan_from_config

    origin = model_origin(job, task)
    body = origin.train or origin.score
    if body is None or body.model.name is None:
        raise BadInput(f"the model of task {task.name} does not exist yet: another task makes it", f"plan without {OPTION}")
    found = plan_from_config(config_from(_config(body.model, base_dir)), degree, sequence=task.train.layout.sequence_parallel)
    total = sum(row.parameters for row in found.placements)
    for row in found.placements:
        yield {
            "task": task.name,
            "degree": degree,
            "name": row.name,
            "style": row.style,
            "cut": row.is_cut,
            "parameters": row.parameters,
            "share": row.parameters / max(total, 1),
            "why": row.why,
        }


def _config(model: ModelRef, base_dir: Path) -> dict[str, Any]:
    """config.json of a model. For a well-known model that cannot be reached: the catalog's."""
    assert model.name is not None
    try:
        return read_config(named_model(model.name, base_dir), model.revision)
    except BadInput:
        known = known_config(model.name)
        if known is None:
            raise
        return dict(known)


def show(rows: Sequence[dict[str, Any]]) -> None:
    """For each task: the share of cut parameters in a sentence, then the rows, then each reason once."""
    for task in dict.fromkeys(row["task"] for row in rows):
        own = [row for row in rows if row["task"] == task]
        typer.echo("\n".join(wrap(_sentence(task, own), WIDTH, subsequent_indent="  ")))
        typer.echo()
        reasons = list(dict.fromkeys(row["why"] for row in own))
        table = [
            {
                "module": row["name"],
                "style": row["style"],
                "parameters": f"{row['parameters']:,}",
                "share": f"{row['share']:.1%}",
                "why": f"({reasons.index(row['why']) + 1})",
            }
            for row in own
        ]
        for line in table_lines(["module", "style", "parameters", "share", "why"], table, right=("parameters", "share", "why")):
            typer.echo(line)
        typer.echo()
        for number, reason in enumerate(reasons, start=1):
            typer.echo("\n".join(wrap(f"({number}) {reason}", WIDTH, subsequent_indent="    ")))
        if task != rows[-1]["task"]:
            typer.echo()


def _sentence(task: str, rows: Sequence[dict[str, Any]]) -> str:
    shares: Counter[bool] = Counter()
    for row in rows:
        shares[row["cut"]] += row["share"]
    degree = rows[0]["degree"]
    parts = f"each of {degree} ranks holds 1/{degree} of {shares[True]:.1%} of the parameters"
    return f"{task}: {parts}, and the other {shares[False]:.1%} whole"
