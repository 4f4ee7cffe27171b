"""`tuneyard plan`: the layout of each task on each SKU, its memory against the SKU's, and its speed. It starts no task."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from textwrap import wrap
from typing import Annotated, Any

import typer

from tuneyard.admission import model_remarks
from tuneyard.api import BadInput, Document, JobSpec, TuneyardError
from tuneyard.catalog import gpu
from tuneyard.cli.checks import check_file, configs_at_hand
from tuneyard.cli.output import Format, OutputOption, print_json
from tuneyard.cli.plan.data import data_lines
from tuneyard.cli.plan.mixture import mixture_lines
from tuneyard.cli.plan.parallel import PlanCommand, explained, show
from tuneyard.cli.plan.picture import show_memory
from tuneyard.cli.plan.placements import Placements
from tuneyard.cli.plan.rows import rows_of
from tuneyard.cli.plan.score_text import score_sentences, score_table, show_speed
from tuneyard.cli.plan.sweep import sweep_lines, swept_names
from tuneyard.cli.plan.text import WIDTH, note_lines, open_batch_lines, peak_lines, rank_table, train_sentences, train_table
from tuneyard.cli.plan.unused import unused_lines
from tuneyard.cli.probed import findings_of, probes_of
from tuneyard.cli.template_files import TemplatesOption, templates_in
from tuneyard.extras import need
from tuneyard.planning import DEFAULT, Calibration, DataRate, past_rates
from tuneyard.runtime.overlaps import overlaps_of
from tuneyard.runtime.probes import Probed
from tuneyard.runtime.score.past import past_scores
from tuneyard.runtime.train.past import past_programs

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("plan", cls=PlanCommand)
def plan(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="a JobSpec")],
    sku: Annotated[list[str] | None, typer.Option(help="kind of machine, instead of those in the file; may be repeated")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="ranks, instead of the number in the file")] = None,
    every: Annotated[bool, typer.Option("--all", help="every plan that fits, fastest first, not only the best of each placement")] = False,
    price: Annotated[list[str] | None, typer.Option(metavar="SKU=PER_HOUR", help="of one GPU (cpu: of the machine); repeatable")] = None,
    core_price: Annotated[float | None, typer.Option(metavar="PER_HOUR", help="of one core of a data worker that a service uses")] = None,
    gpus_per_node: Annotated[int, typer.Option(min=1, help="GPUs in a machine")] = 8,
    network_gb_s: Annotated[float | None, typer.Option(help="GB/s between machines; default: the usual rate of the SKU")] = None,
    sweep: Annotated[
        str | None,
        typer.Option(
            metavar="SETTINGS",
            help="what settings of a train task are worth: every combination of some of offload, flash, recompute, zero, tensorParallel, "
            "each at its largest micro-batch",
        ),
    ] = None,
    explain_parallel: Annotated[
        int | None,
        typer.Option(
            metavar="[N]", min=0, help="only show how N ranks share each weight, and why; default N: strategy.tensorParallel of the file"
        ),
    ] = None,
    templates: TemplatesOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show the plan of each train task (layout, batch sizes, memory per rank, speed), and the engines of score tasks (memory, speed by
    batch, time and cost of the rows).

    Exit code 0; 1 where a task fits on none of its placements; 2: bad input. What is not predicted, as of a program, is no failure.

    Example: tuneyard plan job.yaml --sku a100-80gb --workers 8 --price a100-80gb=1.8 -o json
    """
    if explain_parallel is not None:
        parts = explained(_job(file, templates)[1], file.parent, explain_parallel)
        print_json(parts) if output is Format.JSON else show(parts)
        return
    past = _past()
    placements = Placements(
        skus=[_sku(name) for name in sku] if sku else None,
        workers=workers,
        every=every,
        prices=_prices(price or []),
        gpus_per_node=gpus_per_node,
        network_gb_s=network_gb_s,
        calibration=past.calibration,
        data_rates=past.data_rates,
        core_price=_core_price(core_price),
        sweep=swept_names(sweep) if sweep is not None else (),
        past_scores=past_scores(_without_history),
        past_programs=past_programs(_without_history),
    )
    document, job = _job(file, templates)
    placements = replace(placements, probes=_probes(document, job, file.absolute().parent))
    if placements.sweep and not any(task.train is not None for task in job.spec.tasks):
        raise BadInput(f"{file}: --sweep is of train tasks, and the job has none", "leave --sweep out to plan its other tasks")
    rows = list(rows_of(job, file.parent, placements))
    for line in (*_calibration_lines(rows, past), *unused_lines(job, rows, placements)):
        typer.echo(line, err=True)
    if output is Format.JSON:
        print_json(rows)
    elif placements.sweep:
        _show_sweep(rows)
    elif not rows:
        typer.echo(f"{file}: no train, rank or score task to plan")
    else:
        _show(rows)
    if _without_plan(rows):
        raise typer.Exit(TuneyardError.exit_code)


def _without_plan(rows: Sequence[Mapping[str, Any]]) -> set[str]:
    """Tasks that fit on none of their placements."""
    return {row["task"] for row in rows} - {row["task"] for row in rows if row["fits"] is not False}


def _show(rows: list[dict[str, Any]]) -> None:
    """For each task: the best choice in a sentence, a table, a picture of memory, and the reasons for missing placements."""
    for task in dict.fromkeys(row["task"] for row in rows):
        own = [row for row in rows if row["task"] == task]
        fitting = [row for row in own if row["fits"]]
        if own[0]["kind"] == "train":
            about = (_length_lines, open_batch_lines, peak_lines, note_lines, data_lines)
            said = [*train_sentences(task, fitting), *(line for lines in about for line in lines(fitting))]
            table = train_table(fitting)
        elif own[0]["kind"] == "rank":
            said, table = [], rank_table(fitting)
        else:
            said, table = score_sentences(task, fitting), score_table(fitting)
        if fitting:
            prose = (part for sentence in said for part in wrap(sentence, WIDTH, subsequent_indent="  "))
            typer.echo("\n".join([*prose, "", *table]))
            show_memory(fitting)
            if own[0]["kind"] == "score":
                show_speed(fitting)
        for line in mixture_lines(own):
            typer.echo(line)
        for reason in dict.fromkeys(row["reason"] for row in own if "reason" in row):
            typer.echo(reason)
        if task != rows[-1]["task"]:
            typer.echo()


def _show_sweep(rows: list[dict[str, Any]]) -> None:
    """A table for each placement, and the reason for each that has none."""
    swept = [row for row in rows if "sweep" in row]
    for place in dict.fromkeys((row["task"], row["sku"], row["workers"]) for row in swept):
        own = [row for row in swept if (row["task"], row["sku"], row["workers"]) == place]
        typer.echo("\n".join([*sweep_lines(own), ""]))
    for reason in dict.fromkeys(row["reason"] for row in rows if "sweep" not in row):
        typer.echo(reason)


def _length_lines(rows: list[dict[str, Any]]) -> list[str]:
    """The source of the number of steps, or the reason why the duration is unknown."""
    if not rows:
        return []
    first = rows[0]
    if first["steps"] is None:
        return [f"its duration is unknown: {first['length_unknown']}; set steps to see it"]
    missing = f": {first['length_unknown']}" if first["length_unknown"] else ""
    rows_of_tokens = f"rows of {first['tokens_per_row']:,} tokens: {first['length_from']}{missing}"
    compiling = next((f", and {row['compile_s']:.0f} s of compiling layers" for row in rows if row["compile_s"]), "")
    return [f"{rows_of_tokens}. Durations count only the steps{compiling}"]


@dataclass(frozen=True)
class _Past:
    """Measurements of earlier runs: shares of peaks, the number of runs by SKU, and rates of data workers by format."""

    calibration: Calibration = DEFAULT
    runs: Mapping[str, int] = field(default_factory=dict)
    data_rates: Mapping[str, DataRate] = field(default_factory=dict)
    imported: Mapping[str, int] = field(default_factory=dict)
    """Runs by SKU that were imported, among `runs`."""


def _past() -> _Past:
    """The measurements of the run history, if there are any. A client without pandas plans without them."""
    from tuneyard.runtime.tune.past import past_attempts
    from tuneyard.tuning import calibration_of, history_frame, imported_runs

    attempts = past_attempts(_without_history)
    if not attempts:
        return _Past()
    rates = past_rates(attempts)
    try:
        need("train", "calibration by your own runs")
    except BadInput as error:
        _without_history(f"{error.cause}: {error.next_step}")
        return _Past(data_rates=rates)
    frame = history_frame(attempts)
    return _Past(*calibration_of(frame), rates, imported_runs(frame))


def _without_history(why: str) -> None:
    typer.echo(f"planned without history: {why}", err=True)


def _calibration_lines(rows: Sequence[Mapping[str, Any]], past: _Past) -> list[str]:
    """A line for each SKU with a speed that own runs have corrected."""
    planned = dict.fromkeys(row["sku"] for row in rows if row.get("kind") != "score" and row.get("tokens_per_s") is not None)
    counts = {sku: past.runs[sku] for sku in planned if past.runs.get(sku)}
    of_others = {sku: f", {count} of them imported" for sku, count in past.imported.items()}
    engines = {row["sku"]: row["corrected_by_runs"] for row in rows if row.get("corrected_by_runs")}
    return [
        *(
            f"speeds on {sku} are calibrated by {count} run{'' if count == 1 else 's'} of your history{of_others.get(sku, '')}"
            for sku, count in counts.items()
        ),
        *(
            f"speeds of engines on {sku} are corrected by {count} run{'' if count == 1 else 's'} of your history"
            for sku, count in engines.items()
        ),
    ]


def _probes(document: Document, job: JobSpec, base_dir: Path) -> Mapping[str, Probed]:
    """What some rows of the data are in tokens, by task. Prints what cannot be trained on, or is probably not meant."""
    probes = probes_of(job, base_dir)
    for path, finding in findings_of(job, probes):
        typer.echo(f"warning: {document.complaint(path, str(finding))}", err=True)
    index = {task.name: number for number, task in enumerate(job.spec.tasks)}
    for name, words in overlaps_of(job, base_dir):
        typer.echo(f"warning: {document.complaint(('spec', 'tasks', index[name], 'score', 'data'), words)}", err=True)
    for name, found in probes.items():
        for head in dict.fromkeys(found.heads()):
            typer.echo(f"{name}: rendered {head}", err=True)
        for why in dict.fromkeys(found.unknown()):
            typer.echo(f"{name}: rows are not rendered before the job runs: {why}", err=True)
    return probes


def _job(file: Path, templates: list[Path] | None) -> tuple[Document, JobSpec]:
    jobs = [document for document in check_file(file, find=templates_in(templates)) if isinstance(document.resource, JobSpec)]
    if len(jobs) != 1:
        raise BadInput(f"{file}: holds {len(jobs)} JobSpecs, one is expected here", "give a file with one JobSpec")
    job = jobs[0].resource
    assert isinstance(job, JobSpec)
    for path, words in model_remarks(job, configs_at_hand(job.spec, file.absolute().parent)):
        typer.echo(f"warning: {jobs[0].complaint(path, words)}", err=True)
    return jobs[0], job


def _prices(given: list[str]) -> dict[str, float]:
    """Prices by the catalog's name of the SKU. Raises BadInput for an entry that is not SKU=NUMBER, and for an unknown SKU."""
    prices = {}
    for entry in given:
        name, _, figure = entry.partition("=")
        try:
            price = float(figure)
        except ValueError:
            raise BadInput(f"--price {entry} is not SKU=PER_HOUR", "write it like --price h100-80gb=2.5") from None
        if not 0 <= price < math.inf:
            raise BadInput(f"--price {entry} is not a price", "write it like --price h100-80gb=2.5")
        prices[_sku(name)] = price
    return prices


def _core_price(given: float | None) -> float | None:
    """The price. Raises BadInput for a number that is not a price."""
    if given is not None and not 0 <= given < math.inf:
        raise BadInput(f"--core-price {given} is not a price", "write it like --core-price 0.04")
    return given


def _sku(name: str) -> str:
    """The catalog's name of a SKU. Raises BadInput."""
    return "cpu" if name.strip().lower() == "cpu" else gpu(name).sku
