"""Checks of a file without starting its job: fields, rules, and the catalog's facts about SKUs."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tuneyard.admission import Anywhere, admit, model_remarks, remarks
from tuneyard.api import BadInput, Device, Document, FindTemplate, Job, JobSpec, ModelTemplate, Schedule, load_documents
from tuneyard.api.local_files import LocalFile, local_files
from tuneyard.api.pointers import refuse_pointers
from tuneyard.api.programs import missing_object, module_files
from tuneyard.api.quoting import quoted
from tuneyard.api.templates import no_template
from tuneyard.catalog import known_config, rules_device


def check_file(path: Path, *, elsewhere: Callable[[], Collection[str]] = tuple, find: FindTemplate = no_template) -> list[Document]:
    """All objects of a file, jobs with the defaults of their templates. `elsewhere`: further known SKUs, asked for where the catalog lacks
    a named SKU. `find`: looks up templates that the file does not hold. Raises BadInput with one line per error in its cause."""
    documents = load_documents(path, find)
    lines = [line for document in documents for line in _check(document, elsewhere, path.absolute().parent)]
    if lines:
        raise BadInput("\n".join(lines), f"correct the file, then check it: tuneyard validate {quoted(path)}")
    return documents


def check_shipped_data(spec: JobSpec, base_dir: Path, complaint: Callable[[tuple[str | int, ...], str], str]) -> list[str]:
    """Check the data that `submit` ships: the first rows, and some rows rendered. `complaint`: makes the message from path in the JobSpec
    and cause. Returns warnings. Raises BadInput."""
    for file in local_files(spec.spec):
        try:
            _check_first_rows(spec.spec, file, base_dir)
        except BadInput as error:
            raise BadInput(complaint(file.path, error.cause), error.next_step) from error
    from tuneyard.cli.probed import findings_of, probes_of

    found = list(findings_of(spec, probes_of(spec, base_dir)))
    for path, finding in found:
        if finding.fatal:
            raise BadInput(complaint(path, finding.cause), finding.next_step)
    return [complaint(path, str(finding)) for path, finding in found]


def _check_first_rows(job: Job, file: LocalFile, base_dir: Path) -> list[str]:
    """Notes on how the first rows are read. Raises BadInput for data whose first rows are unusable."""
    from tuneyard.data.head import check_source
    from tuneyard.ranking import check_table
    from tuneyard.runtime.score.rankers import check_scored_table, ranker_of
    from tuneyard.scoring.structured import check_schema, read_schema
    from tuneyard.storage import absolute

    task = job.tasks[int(file.path[2])]
    if file.what == "schema":
        check_schema(read_schema(absolute(file.text, base_dir)))
        return []
    ranker = ranker_of(job, task, base_dir)
    if file.what == "data" and task.rank is not None:
        check_table(task.rank, absolute(file.text, base_dir), held_out="validation" in file.path)
    elif file.what == "data" and ranker is not None:
        check_scored_table(task, ranker, absolute(file.text, base_dir))
    elif file.what == "data":
        source = task.sources()[".".join(map(str, file.path[3:-1]))]
        return check_source(task.train or task.score, source, absolute(file.text, base_dir))
    return []


def warnings_of(document: Document, base_dir: Path) -> Iterator[str]:
    """Warnings, one line each: a relative path of a job that is missing, not a model, or holds unusable data; columns that are not used; a
    task whose planned duration exceeds the job's deadline; rows that a model may not take."""
    found = _job_of(document)
    if found is None:
        return
    root, job = found
    spec = JobSpec(metadata=document.resource.metadata, spec=job)
    for path, words in (*remarks(spec), *model_remarks(spec, configs_at_hand(job, base_dir))):
        yield document.complaint((*root, *path[1:]), words)
    lacking = set()
    for file in local_files(job):
        if isinstance(document.resource, Schedule) and "{{" in file.text:
            continue  # the file of each run is another one
        lacks, is_fault = _lacks(job, file, base_dir)
        if is_fault:
            lacking.add(job.tasks[int(file.path[2])].name)
        for lack in lacks:
            yield document.complaint((*root, *file.path[1:]), lack)
    if isinstance(document.resource, JobSpec):
        yield from rendered_lines(document, base_dir, known=lacking)


def rendered_lines(document: Document, base_dir: Path, *, known: Collection[str] = ()) -> Iterator[str]:
    """What a look at some rows, rendered and tokenised, says about the data of train tasks; see `findings_of`."""
    from tuneyard.cli.probed import findings_of, probes_of

    job = document.resource
    assert isinstance(job, JobSpec)
    for path, finding in findings_of(job, probes_of(job, base_dir), known=known):
        yield document.complaint(path, str(finding))


def configs_at_hand(job: Job, base_dir: Path) -> dict[str, dict[str, Any]]:
    """config.json of the models that tasks name, by task: of folders on this machine, and of the catalog. Of an adapter that of its base.
    The others are left out: nothing is asked of a server."""
    from tuneyard.runtime.models import config_of  # late: most files name no folder
    from tuneyard.training.model_finder import find_model, is_name

    found: dict[str, dict[str, Any]] = {}
    for task in job.tasks:
        body = task.train or task.score
        name = body.model.name if body is not None else None
        if name is None or ("://" in name and not is_name(name)):
            continue
        folder = base_dir / Path(name).expanduser()
        config = None
        with suppress(OSError, ValueError, BadInput):
            model = find_model(str(folder)) if folder.exists() else None
            uri = model.model_uri if model is not None else name
            config = known_config(uri) if model is None or is_name(uri) else config_of(model)
        if isinstance(config, dict):
            found[task.name] = config
    return found


def _lacks(job: Job, file: LocalFile, base_dir: Path) -> tuple[list[str], bool]:
    """The fault of a file, or notes on how its rows are read, and whether it is a fault."""
    task = job.tasks[int(file.path[2])].train
    missing = _missing(file, base_dir, task.program if task is not None else None)
    if missing:
        return [missing], True
    try:
        if file.what == "model":
            from tuneyard.training.model_finder import MODULES, find_model

            folder = base_dir / Path(file.text).expanduser()
            refuse_pointers(folder)
            if not ((folder / "ranker.json").is_file() or (folder / MODULES).is_file()):  # of an encoder, config.json may lie below
                find_model(str(folder))
        return _check_first_rows(job, file, base_dir), False
    except BadInput as error:
        cause = " ".join(line.strip() for line in error.cause.splitlines())
        if file.what == "model":
            cause = cause.replace(str(base_dir / Path(file.text).expanduser()), file.text)
        return [f"{cause}; {error.next_step}" if error.next_step else cause], True


def _missing(file: LocalFile, base_dir: Path, program: str | None = None) -> str:
    if file.what == "program" and program is not None:
        found = module_files(program, base_dir)
        return missing_object(program, base_dir) or ("" if found else f"{file.text}: no such module beside the JobSpec")
    there = base_dir / Path(file.text).expanduser()
    if file.what == "data" and re.search(r"[*?\[]", file.text):
        return "" if any(base_dir.glob(file.text)) else f"no file matches {file.text}"
    if not there.exists():
        return f"{file.text}: no such file or folder beside the JobSpec"
    return ""


def _check(document: Document, elsewhere: Callable[[], Collection[str]], base_dir: Path) -> Iterator[str]:
    devices: dict[str, Device] = {}
    for path, sku in _wanted_skus(document):
        try:
            devices[sku] = rules_device(sku)
        except BadInput as error:
            if sku not in elsewhere():
                yield document.complaint(path, f"{error.cause}; {error.next_step}")
    if isinstance(document.resource, Schedule):
        from tuneyard.cli.schedule.checks import complaints_about  # croniter is loaded for Schedules alone

        yield from complaints_about(document, document.resource, devices)
        return
    found = _job_of(document)
    if found is not None:
        root, job = found
        spec = JobSpec(metadata=document.resource.metadata, spec=job)
        for refusal in admit(spec, Anywhere(), devices=devices, configs=configs_at_hand(job, base_dir)):
            yield document.complaint((*root, *refusal.path[1:]), refusal.words)
        for path, words in _bad_schemas(job):
            yield document.complaint((*root, *path[1:]), words)


def _bad_schemas(job: Job) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """JSON schemas of answers that are none: path in the JobSpec, and words. Unchecked in an install without the library that knows."""
    if find_spec("jsonschema") is None:
        return
    from tuneyard.scoring.structured import check_schema

    for index, task in enumerate(job.tasks):
        schema = task.score.generation.json_schema if task.score is not None else None
        try:
            if isinstance(schema, dict):
                check_schema(schema)
        except BadInput as error:
            yield ("spec", "tasks", index, "score", "generation", "schema"), f"{error.cause}; {error.next_step}"


def _wanted_skus(document: Document) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Each SKU that a job or a template names, with its path in the file."""
    if isinstance(document.resource, ModelTemplate):
        goal = document.resource.spec
        for path, skus in ((("resources", "sku"), goal.resources), (("job", "placement", "skus"), goal.job.get("placement"))):
            named = skus.get(path[-1]) if isinstance(skus, dict) else None
            yield from ((("spec", *path, index), sku) for index, sku in enumerate(named or ()))
        return
    found = _job_of(document)
    if found is None:
        return
    root, job = found
    for index, sku in enumerate(job.placement.skus):
        yield (*root, "placement", "skus", index), sku
    for number, task in enumerate(job.tasks):
        for index, sku in enumerate(task.resources.sku):
            yield (*root, "tasks", number, "resources", "sku", index), sku


def _job_of(document: Document) -> tuple[tuple[str, ...], Job] | None:
    resource = document.resource
    if isinstance(resource, JobSpec):
        return ("spec",), resource.spec
    if isinstance(resource, Schedule):
        return ("spec", "template", "spec"), resource.spec.template.spec
    return None
