"""`tuneyard tune`: search the settings under which a task runs fastest on this machine, and write them down."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuneyard.api import BadInput, JobSpec, Task, TuneTask, TuneyardError, load_jobspec
from tuneyard.api.quoting import quoted
from tuneyard.api.tasks import Budget
from tuneyard.api.tuned_settings import problems_of_search
from tuneyard.cli.template_files import TemplatesOption, templates_in

if TYPE_CHECKING:
    from tuneyard.tracking import Event, Tried

_SHOWN = 10


def tune(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JobSpec in YAML, with a tune task, or one train, rank or score task")],
    out: Annotated[str | None, typer.Option(metavar="DIR", help="folder for all output; default: runs/NAME-N")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue in DIR: measured trials do not run again")] = False,
    trials: Annotated[int | None, typer.Option(min=2, help="number of runs, pairs included, instead of the file's budget.trials")] = None,
    minutes: Annotated[float | None, typer.Option(min=0.1, help="minutes of the search, instead of the file's budget.minutes")] = None,
    searcher: Annotated[str | None, typer.Option(help="reinforce, random or tpe, instead of the file's")] = None,
    at_once: Annotated[int | None, typer.Option(min=1, max=64, help="gangs side by side, instead of the file's budget.atOnce")] = None,
    templates: TemplatesOption = None,
) -> int:
    """Try settings in short runs, and find those under which a train, rank or score task is fastest here.

    The plan of the file runs beside them, and the winner is confirmed against it in pairs. The job with the winner's settings is written
    beside FILE, as NAME.tuned.yaml.

    Example: tuneyard tune jobspecs/tune-quickstart.yaml
    """
    from tuneyard.cli.progress.views import open_progress
    from tuneyard.runtime import default_output, run_job, stop_on_interrupt
    from tuneyard.tracking import Tried

    job, name = with_search(load_jobspec(file, templates_in(templates)), trials=trials, minutes=minutes, searcher=searcher, at_once=at_once)
    target = out or default_output(job, resume=resume)
    heard: list[Tried] = []
    failure: TuneyardError | KeyboardInterrupt | None = None
    with open_progress(job) as progress, stop_on_interrupt(progress.stopping) as should_stop:

        def listen(event: Event) -> None:
            if isinstance(event, Tried):
                heard.append(event)
            progress(event)

        try:
            report = run_job(
                job, base_dir=file.absolute().parent, out=target, resume=resume, until=name, listener=listen, should_stop=should_stop
            )
        except (TuneyardError, KeyboardInterrupt) as error:
            failure = error
    if failure is not None:
        _show_heard(heard)
        raise failure
    found = report.tasks.get(name, {})
    if "gain" in found:
        _show(found, search_of(job, name).budget)
        if found["gain"] > 0:
            typer.echo(f"tuned job: {_write(job, name, found, file)}")
    if report.status == "stopped":
        typer.echo(f"stopped; to continue: tuneyard tune {quoted(file)} --resume --out {quoted(target)}", err=True)
    return 0 if report.status == "succeeded" else 1


def with_search(
    job: JobSpec, *, trials: int | None, minutes: float | None, searcher: str | None, at_once: int | None = None
) -> tuple[JobSpec, str]:
    """The job with a tune task, its own or a new one, and that task's name. Raises BadInput if the task to tune is ambiguous, or if it
    cannot be searched like this.
    """
    own = [task for task in job.spec.tasks if task.tune is not None]
    trains = [task for task in job.spec.tasks if task.training is not None]
    scores = [task for task in job.spec.tasks if task.score is not None]
    found = trains or scores
    if len(own) > 1 or (not own and len(found) != 1):
        what = f"{len(trains)} train or rank tasks" if trains else f"{len(scores)} score tasks"
        raise BadInput(
            f"{job.metadata.name} has {len(own)} tune tasks and {what}: it is not clear what to tune",
            "add one tune task: {name: search, tune: {task: NAME-OF-THE-TASK}}",
        )
    search = own[0] if own else Task(name="search", tune=TuneTask(task=found[0].name))
    assert search.tune is not None
    given = {"trials": trials, "minutes": minutes, "at_once": at_once}
    budget = search.tune.budget.model_copy(update={key: value for key, value in given.items() if value is not None})
    changes: dict[str, Any] = {"budget": budget.model_dump(by_alias=True)}
    if searcher is not None:
        if searcher not in ("reinforce", "random", "tpe"):
            raise BadInput(f"there is no searcher {searcher}", "take reinforce, random or tpe")
        changes["searcher"] = searcher
    asked = TuneTask.model_validate(search.tune.model_dump(by_alias=True, exclude_unset=True) | changes)
    tasks = [task for task in job.spec.tasks if task.name != search.name]
    for place, reason in problems_of_search(asked, job.spec.task(asked.task), tasks):
        raise BadInput(f"{'.'.join(map(str, ('tune', *place)))}: {reason}", "change the file or the options of this command")
    spec = job.spec.model_copy(update={"tasks": [*tasks, search.model_copy(update={"tune": asked})]})
    return job.model_copy(update={"spec": spec}), search.name


def search_of(job: JobSpec, name: str) -> TuneTask:
    search = job.spec.task(name).tune
    assert search is not None
    return search


def _show_heard(heard: list[Tried]) -> None:
    """Print the trials that were measured before the search was interrupted, in their order."""
    from tuneyard.cli.output import print_table
    from tuneyard.cli.trial_lines import words

    rows = [
        {
            "trial": each.number,
            **({"gang": each.gang} if each.gang else {}),
            "settings": words(each.settings) or "of the file",
            f"{each.unit}_per_s": each.measured,
            "ratio": each.ratio,
            "failure": each.failure or None,
            "seconds": each.seconds,
        }
        for each in heard
    ]
    if rows:
        typer.echo("measured before the search ended:")
        print_table(list(rows[0]), rows)


def _show(found: dict[str, Any], budget: Budget) -> None:
    from tuneyard.cli.output import print_table
    from tuneyard.cli.trial_lines import words

    best = sorted(found["trials"], key=lambda trial: -(trial["ratio"] or 0.0))
    rows = [{**each, "settings": words(each["point"]) or "of the file"} for each in [*found["own"], *best[:_SHOWN]]]
    rate = f"{found.get('unit', 'tokens')}_per_s"
    for row in rows:
        row |= {"failure": row["failure"] or None, rate: _figure(row["tokens_per_s"]), "seconds": _figure(row["seconds"])}
    of_gang = ["gang"] if found.get("gangs", 1) > 1 else []
    print_table(["settings", *of_gang, rate, "ratio", "failure", "seconds"], rows, right=(rate, "seconds"))
    for setting, values in _by_setting(found["effects"]).items():
        typer.echo(f"{setting}: {', '.join(values)}")
    typer.echo(verdict(found, budget))
    if found.get("out_of_time"):
        typer.echo(f"time was over after {found['runs']} of {budget.trials} runs: more minutes would try more")


def _figure(value: float | None) -> str | None:
    from tuneyard.cli.output import rounded_text

    return rounded_text(value) if value is not None else None


def verdict(found: Mapping[str, Any], budget: Budget) -> str:
    """The result of a search in a sentence: the winner, or the settings of the file."""
    from tuneyard.cli.trial_lines import words

    what = "cheaper" if found["objective"] == "cost" else "faster"
    pairs = ", ".join(f"{ratio:.3f}" for ratio in found["ratios"])
    tried, best = len(found["trials"]), words(found["tried_best"])
    ran = [trial["ratio"] for trial in found["trials"] if trial["ratio"] is not None]
    if found["gain"] > 0:
        room = f"; the budget had room for {len(found['ratios'])} of {budget.pairs}" if len(found["ratios"]) < budget.pairs else ""
        return f"{words(found['best'])}: {found['gain']:+.1%} {what} than the settings of the file (pairs: {pairs}{room})"
    if not tried:
        return "nothing but the settings of the file has run: give it more trials or minutes"
    if not ran:
        return f"no trial ran to its end ({tried} tried): the settings of the file stay"
    of_others = f"of {tried} others, the best" if tried > 1 else "the other"
    others = f"{of_others} ({best}) reached {max(ran):.2f} times their {'worth' if what == 'cheaper' else 'speed'}"
    if not found["leads"]:
        stopped = "so far, " if found["status"] == "stopped" else ""
        return f"{stopped}yours are the best of {tried + 1}: {others}"
    if found["ratios"] and min(found["ratios"]) <= 1:
        return f"the settings of the file stay: {best} came first, but is not {what} in all pairs ({pairs})"
    if found["status"] == "stopped":
        return f"{best} is the best so far ({max(ran):.2f}x); it is not confirmed in pairs yet"
    if found["pairs"] and len(found["ratios"]) < len(found["pairs"]):
        return f"the settings of the file stay: {best} came first, but failed when it ran again"
    room = "" if len(found["ratios"]) else f", and the budget ({budget.trials} trials{_minutes(budget)}) left no room for pairs"
    return f"the settings of the file stay: {best} came first ({max(ran):.2f}x), but is not confirmed (pairs: {pairs or 'none'}){room}"


def _minutes(budget: Budget) -> str:
    return f", {budget.minutes:g} minutes" if budget.minutes is not None else ""


def _by_setting(effects: list[dict[str, Any]]) -> dict[str, list[str]]:
    """The effect of each value of each setting, in words: the mean over its trials."""
    found: dict[str, list[str]] = {}
    for each in effects:
        did = f"{each['ratio']:.2f}x" if each["ratio"] is not None else "all failed"
        found.setdefault(each["setting"], []).append(f"{str(each['value']).lower()} {did} ({each['trials']})")
    return found


def _write(job: JobSpec, name: str, found: dict[str, Any], file: Path) -> Path:
    """Write the job with the winner's settings, without the search, beside its file, where relative paths keep their meaning."""
    import yaml

    from tuneyard.api.tuned_settings import apply_settings

    tasks = [apply_settings(task, found["best"]) if task.name == found["tuned"] else task for task in job.spec.tasks if task.name != name]
    freed = [task.model_copy(update={"depends_on": [other for other in task.depends_on if other != name]}) for task in tasks]
    tuned = job.model_copy(update={"spec": job.spec.model_copy(update={"tasks": freed})})
    target = file.with_name(f"{file.stem}.tuned.yaml")
    text = yaml.safe_dump(tuned.to_yaml_dict(), sort_keys=False)
    try:
        target.write_text(text)
    except OSError as error:
        typer.echo(text)
        raise BadInput(f"{target} cannot be written: {error.strerror}", "the tuned job is printed above") from error
    return target
