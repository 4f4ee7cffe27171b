"""`tuneyard tune`: search the settings under which a train task runs fastest on this machine, and write them down."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tuneyard.api import BadInput, JobSpec, Task, TuneTask, TuneyardError, load_jobspec

TUNED = "tuned.yaml"
_SHOWN = 10


def tune(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JobSpec in YAML, with a tune task or one train task")],
    out: Annotated[str | None, typer.Option(metavar="DIR", help="folder for all output; default: runs/NAME-N")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on in DIR: trials that were measured are not run again")] = False,
    trials: Annotated[int | None, typer.Option(min=1, help="instead of the file's budget.trials")] = None,
    minutes: Annotated[float | None, typer.Option(min=0.1, help="instead of the file's budget.minutes")] = None,
    searcher: Annotated[str | None, typer.Option(help="reinforce, random or tpe, instead of the file's")] = None,
) -> int:
    """Try settings in short runs, and find those under which a train task is fastest here.

    The plan of the file runs beside them, and the winner is confirmed against it in pairs. tuned.yaml in DIR is the job with the winner.

    Example: tuneyard tune jobspecs/tune-quickstart.yaml
    """
    from tuneyard.cli.progress import open_progress
    from tuneyard.runtime import default_output, run_job, stop_on_interrupt

    job, name = with_search(load_jobspec(file), trials=trials, minutes=minutes, searcher=searcher)
    target = out or default_output(job, resume=resume)
    with open_progress(job) as progress, stop_on_interrupt(progress.stopping) as should_stop:
        try:
            report = run_job(
                job, base_dir=file.absolute().parent, out=target, resume=resume, until=name, listener=progress, should_stop=should_stop
            )
        except TuneyardError as error:
            failure: TuneyardError | None = error
        else:
            failure = None
    if failure is not None:
        raise failure
    found = report.tasks[name]
    _show(found)
    if found["gain"] > 0:
        typer.echo(f"tuned job: {_write(job, name, found, Path(target))}")
    return 0 if report.status == "succeeded" else 1


def with_search(job: JobSpec, *, trials: int | None, minutes: float | None, searcher: str | None) -> tuple[JobSpec, str]:
    """The job with a tune task, its own or a new one, and that task's name. Raises BadInput where it is not clear what to tune."""
    own = [task for task in job.spec.tasks if task.tune is not None]
    trains = [task for task in job.spec.tasks if task.train is not None]
    if len(own) > 1 or (not own and len(trains) != 1):
        raise BadInput(
            f"{job.metadata.name} has {len(own)} tune tasks and {len(trains)} train tasks: it is not clear what to tune",
            "add one tune task: {name: search, tune: {task: NAME-OF-THE-TRAIN-TASK}}",
        )
    search = own[0] if own else Task(name="search", tune=TuneTask(task=trains[0].name))
    assert search.tune is not None
    budget = search.tune.budget.model_copy(
        update={key: value for key, value in (("trials", trials), ("minutes", minutes)) if value is not None}
    )
    changes: dict[str, Any] = {"budget": budget.model_dump(by_alias=True)}
    if searcher is not None:
        if searcher not in ("reinforce", "random", "tpe"):
            raise BadInput(f"there is no searcher {searcher}", "take reinforce, random or tpe")
        changes["searcher"] = searcher
    asked = TuneTask.model_validate(search.tune.model_dump(by_alias=True) | changes)
    tasks = [task for task in job.spec.tasks if task.name != search.name]
    spec = job.spec.model_copy(update={"tasks": [*tasks, search.model_copy(update={"tune": asked})]})
    return job.model_copy(update={"spec": spec}), search.name


def _show(found: dict[str, Any]) -> None:
    from tuneyard.cli.output import print_table
    from tuneyard.cli.trial_lines import words

    own = [trial["tokens_per_s"] for trial in found["own"] if trial["tokens_per_s"]]
    base = sum(own) / len(own) if own else 0.0
    best = sorted(found["trials"], key=lambda trial: -(trial["tokens_per_s"] or 0.0))
    rows = [{"settings": "of the file", "tokens_per_s": base, "ratio": 1.0, "seconds": None}] if base else []
    for trial in best[:_SHOWN]:
        rate = trial["tokens_per_s"]
        told = {"tokens_per_s": rate, "ratio": rate / base} if rate and base else {"tokens_per_s": trial["failure"], "ratio": None}
        rows.append({"settings": words(trial["point"]), **told, "seconds": trial["seconds"]})
    print_table(["settings", "tokens_per_s", "ratio", "seconds"], rows)
    pairs = ", ".join(f"{theirs / one:.3f}" for one, theirs in found["pairs"])
    if found["gain"] > 0:
        typer.echo(f"{words(found['best'])}: {found['gain']:+.1%} against the settings of the file (pairs: {pairs})")
    else:
        typer.echo(f"nothing was confirmed to be faster than the settings of the file (pairs: {pairs or 'none'})")


def _write(job: JobSpec, name: str, found: dict[str, Any], folder: Path) -> Path:
    """The job with the winner's settings, and without the search."""
    import yaml

    from tuneyard.tuning import applied

    tasks = [applied(task, found["best"]) if task.name == found["tuned"] else task for task in job.spec.tasks if task.name != name]
    tuned = job.model_copy(update={"spec": job.spec.model_copy(update={"tasks": tasks})})
    target = folder / TUNED
    target.write_text(yaml.safe_dump(tuned.to_yaml_dict(), sort_keys=False))
    return target
