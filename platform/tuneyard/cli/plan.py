"""`tuneyard plan`: how each task would run on each SKU, whether that fits in memory, and how fast it would be. Starts nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuneyard.api import BadInput, JobSpec
from tuneyard.cli.checks import check_file
from tuneyard.cli.output import Format, OutputOption, print_json, print_table
from tuneyard.cli.plan_picture import show_memory
from tuneyard.cli.plan_rows import SCORE_COLUMNS, TRAIN_COLUMNS, Placements, flat, rows_of
from tuneyard.planning import Calibration


def plan(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="a JobSpec")],
    sku: Annotated[list[str] | None, typer.Option(help="kind of machine, instead of those in the file; may be repeated")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="ranks, instead of the number in the file")] = None,
    every: Annotated[bool, typer.Option("--all", help="every plan that fits, fastest first, not only the best of each placement")] = False,
    price: Annotated[list[str] | None, typer.Option(metavar="SKU=PER_HOUR", help="of one GPU (cpu: of the machine); repeatable")] = None,
    gpus_per_node: Annotated[int, typer.Option(min=1, help="GPUs in a machine")] = 8,
    network_gb_s: Annotated[float | None, typer.Option(help="GB/s between machines; default: what is usual for the SKU")] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Say how each train task would run (layout, batch sizes, memory per rank, speed), and what engines of score tasks hold.

    Example: tuneyard plan job.yaml --sku a100-80gb --workers 8 --price a100-80gb=1.8 -o json
    """
    placements = Placements(
        skus=sku,
        workers=workers,
        every=every,
        prices=_prices(price or []),
        gpus_per_node=gpus_per_node,
        network_gb_s=network_gb_s,
        calibration=_calibration(),
    )
    rows = list(rows_of(_job(file), file.parent, placements))
    if output is Format.JSON:
        print_json(rows)
        return
    if not rows:
        typer.echo(f"{file}: no train or score task to plan")
        return
    train, score = ([row for row in rows if row["kind"] == kind and "sku" in row] for kind in ("train", "score"))
    if train:
        print_table(TRAIN_COLUMNS, [flat(row) for row in train])
        show_memory([row for row in train if row["fits"]])
    if score:
        if train:
            typer.echo()
        print_table(SCORE_COLUMNS, [flat(row) for row in score])
        show_memory([row for row in score if row["fits"]])
    for reason in dict.fromkeys(row["reason"] for row in rows if "reason" in row):
        typer.echo(reason)


def _calibration() -> Calibration:
    """Of this platform's own runs, where there are any."""
    from tuneyard.runtime.past import past_runs
    from tuneyard.tuning import calibration_of

    rows = past_runs(lambda why: typer.echo(f"planned without history: {why}", err=True))
    found, runs = calibration_of(rows)
    if runs:
        typer.echo(f"speeds are calibrated by {runs} runs of your history", err=True)
    return found


def _job(file: Path) -> JobSpec:
    jobs = [document.resource for document in check_file(file) if isinstance(document.resource, JobSpec)]
    if len(jobs) != 1:
        raise BadInput(f"{file}: holds {len(jobs)} JobSpecs, one is expected here", "give a file with one JobSpec")
    return jobs[0]


def _prices(given: list[str]) -> dict[str, float]:
    """Prices by SKU. Raises BadInput for what is not SKU=NUMBER."""
    prices = {}
    for entry in given:
        sku, _, figure = entry.partition("=")
        try:
            prices[sku.strip().lower()] = float(figure)
        except ValueError:
            raise BadInput(f"--price {entry} is not SKU=PER_HOUR", "write it like --price h100-80gb=2.5") from None
        if not prices[sku.strip().lower()] >= 0:
            raise BadInput(f"--price {entry} is not a price", "write it like --price h100-80gb=2.5")
    return prices
