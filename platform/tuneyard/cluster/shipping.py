"""Shipping of files beside a JobSpec to a cluster. Each file is copied below the job's storage under the hash of its content, and its URI
replaces its path. Content that is stored already is not sent again."""

from __future__ import annotations

import copy
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput, FindTemplate, JobSpec, ScoreTask, Task
from tuneyard.api.loading_yaml import Path as Field
from tuneyard.api.local_files import SHIPPED, LocalFile, is_relative, local_files
from tuneyard.api.programs import files_below, missing_object, module_files, module_of, named_files, program_files
from tuneyard.api.templates import filled_manifest, no_template
from tuneyard.cluster.errors import Problem
from tuneyard.metrics.own import program_of
from tuneyard.storage import MANIFEST, is_local, join, local_path
from tuneyard.training.model_finder import MODULES, find_model, is_name, name_of

LIMIT_BYTES = 2 << 30
"""The most bytes that one job ships by default. Larger data should be uploaded to storage once, under its own name."""
_GLOB = "*?["
_BLOCK_BYTES = 1 << 22


class CannotShip(BadInput):
    """Files that a cluster needs cannot be shipped. Nothing was sent or created."""

    def __init__(self, problems: tuple[Problem, ...], next_step: str) -> None:
        super().__init__("\n".join(map(str, problems)), next_step)
        self.problems = problems

    def __reduce__(self) -> tuple[object, ...]:
        return CannotShip, (self.problems, self.next_step)


@dataclass(frozen=True)
class Parcel:
    """One value of a JobSpec, and its files. `files`: files of this machine by name in the parcel. `name`: the name of the parcel in
    storage; for a single file, also the only name in it. `within`: a pattern below the parcel."""

    field: Field
    text: str
    name: str
    files: Mapping[str, Path]
    single: bool = False
    within: str = ""

    @cached_property
    def size_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.files.values())

    @cached_property
    def hashes(self) -> Mapping[str, str]:
        """SHA-256 of each file, in hexadecimal."""
        return {name: _sha256(path) for name, path in sorted(self.files.items())}

    @property
    def executable(self) -> list[str]:
        return sorted(name for name, path in self.files.items() if os.access(path, os.X_OK))

    @cached_property
    def digest(self) -> str:
        """A hash that is equal for equal content."""
        content = repr([sorted(self.hashes.items()), [] if self.single else self.executable])
        return hashlib.sha256(content.encode()).hexdigest()[:32]

    @property
    def place(self) -> str:
        """Its path below the folder of shipped files."""
        return f"{self.digest}/{self.name}"


@dataclass(frozen=True)
class Shipment:
    """A JobSpec whose paths are URIs below `root`, and the parcels that must be stored there before it runs."""

    manifest: Mapping[str, Any]
    root: str
    parcels: tuple[Parcel, ...]

    @property
    def size_bytes(self) -> int:
        return sum(parcel.size_bytes for parcel in self.parcels)

    def uri(self, parcel: Parcel) -> str:
        return join(self.root, parcel.place)


def shipment_of(
    manifest: Mapping[str, Any],
    base_dir: Path,
    *,
    out: str | None = None,
    limit_bytes: int = LIMIT_BYTES,
    find: FindTemplate = no_template,
) -> Shipment:
    """The shipment of a JobSpec (as its file holds it) whose relative paths start at `base_dir`. `out`: an output instead of its own.
    `find`: looks up its template; defaults of templates name no files.

    Reads files, and sends nothing. Raises CannotShip with each path that cannot be shipped: missing, outside of the folder, too large, or
    without storage to ship to.
    """
    body = copy.deepcopy(dict(manifest))
    if out is not None:
        body["spec"]["storage"] = {**(body["spec"].get("storage") or {}), "output": out}
    job = JobSpec.model_validate(filled_manifest(body, find))
    output = job.spec.storage.output
    if output is not None and is_relative(output):
        raise CannotShip((Problem("spec.storage.output", f"{output} is a folder of this machine, and no cluster has it"),), _SAY_WHERE)
    problems: list[Problem] = []
    parcels = list(_parcels(job, base_dir, problems))
    if problems:
        raise CannotShip(tuple(problems), "correct the paths; or upload the files yourself, and name their URIs")
    if parcels and (output is None or is_local(output)):
        raise CannotShip(tuple(_problem(p, f"{p.text} has to be shipped, and {_no_storage(output)}") for p in parcels), _SAY_WHERE)
    _check_size(parcels, limit_bytes)
    root = join(output or "", SHIPPED)
    for parcel in parcels:
        _put(body, parcel.field, join(root, parcel.place, parcel.within))
    unique = {parcel.place: parcel for parcel in parcels}
    return Shipment(body, root, tuple(unique.values()))


_SAY_WHERE = "say where the job writes, in storage that the cluster reaches: --out s3://BUCKET/FOLDER, or storage.output in the file"


def _no_storage(output: str | None) -> str:
    return "the job names no storage" if output is None else f"{output} is a folder of a machine: give the path as the cluster mounts it"


def _check_size(parcels: list[Parcel], limit_bytes: int) -> None:
    whole = sum(parcel.size_bytes for parcel in {tuple(sorted(p.files.values())): p for p in parcels}.values())
    if whole > limit_bytes:
        largest = sorted(parcels, key=lambda parcel: parcel.size_bytes, reverse=True)[:3]
        sizes = [_problem(parcel, f"{parcel.text} has {parcel.size_bytes:,} bytes") for parcel in largest]
        raise CannotShip(
            (*sizes, Problem("", f"{whole:,} bytes in all are more than submit ships: {limit_bytes:,}")),
            "upload the large ones once (aws s3 cp --recursive), and name their URIs; or raise the limit: --ship-limit 20Gi",
        )


def _parcels(job: JobSpec, base_dir: Path, problems: list[Problem]) -> Iterator[Parcel]:
    """A parcel for each value that names a file or folder beside the JobSpec. Problems are added to `problems`."""
    for file in _named(job, base_dir):
        try:
            yield _parcel(file, base_dir)
        except BadInput as error:
            problems.append(Problem(dotted(file.path), error.cause))
    for index, line in enumerate(job.spec.setup):
        if named := named_files(line, base_dir):
            reason = f"names {', '.join(named)} beside the file, and setup runs where no file has been shipped to: put it into the image"
            problems.append(Problem(f"spec.setup[{index}]", reason))
    for code, field, paths in _code(job, base_dir, problems):
        try:
            files = {_name_below(base_dir, _checked(path, base_dir)): path for path in paths}
        except BadInput as error:
            problems.append(Problem(dotted(code), error.cause))
            continue
        if files:
            yield Parcel(field, ", ".join(sorted(files)), job.spec.tasks[int(field[2])].name, files)


def _code(job: JobSpec, base_dir: Path, problems: list[Problem]) -> Iterator[tuple[Field, Field, set[Path]]]:
    """Code of commands and training programs beside the JobSpec: the field that names it, the field that gets its folder, its files."""
    for index, task in enumerate(job.spec.tasks):
        root: Field = ("spec", "tasks", index, task.kind)
        if task.process is not None and task.process.working_dir is None:
            yield (*root, "command"), (*root, "workingDir"), program_files(task.process.command, base_dir)
        if task.score is not None and task.score.own_metrics and task.score.metrics_dir is None:
            yield from _own_metrics(job, task.score, root, base_dir, problems)
        program = task.train.program if task.train is not None else None
        if program is None or task.train is None or task.train.program_dir is not None:
            continue
        files = module_files(program, base_dir)
        if why := missing_object(program, base_dir):
            problems.append(Problem(dotted((*root, "program")), why))
        elif not files and job.spec.image is None:
            module = program.partition(":")[0]
            reason = f"no module {module} beside the JobSpec; one that is installed in an image of yours needs spec.image"
            problems.append(Problem(dotted((*root, "program")), reason))
        else:
            yield (*root, "program"), (*root, "programDir"), files


def _own_metrics(
    job: JobSpec, score: ScoreTask, root: Field, base_dir: Path, problems: list[Problem]
) -> Iterator[tuple[Field, Field, set[Path]]]:
    """Modules of a score task's own metrics, as in `_code`."""
    found: set[Path] = set()
    for number, name in enumerate(score.own_metrics):
        files, field = module_files(program_of(name), base_dir), dotted((*root, "ownMetrics", number))
        found |= files
        if why := missing_object(program_of(name), base_dir):
            problems.append(Problem(field, why))
        elif not files and job.spec.image is None:
            reason = f"no module {module_of(name)} beside the JobSpec; one that is installed in an image of yours needs spec.image"
            problems.append(Problem(field, reason))
    yield (*root, "ownMetrics"), (*root, "metricsDir"), found


def _named(job: JobSpec, base_dir: Path) -> Iterator[LocalFile]:
    for file in local_files(job.spec):
        if file.what == "program":  # shipped with its imports, by `_code`
            continue
        if file.what != "script" or not os.path.exists(base_dir / file.text):  # existing scripts are shipped with their command
            yield file
    for index, task in enumerate(job.spec.tasks):
        for name, place in _models(task):
            field = ("spec", "tasks", index, task.kind, *place)
            if is_relative(name) and os.path.exists(base_dir / name) and all(f.path != field for f in local_files(job.spec)):
                yield LocalFile(field, name, "model")


def _models(task: Task) -> Iterator[tuple[str, Field]]:
    """Names of models, each with its field below the task's kind."""
    body = task.train or task.score
    if body is not None and body.model.name is not None:
        yield body.model.name, ("model", "name")
    for number, model in enumerate(task.serve.models if task.serve is not None else ()):
        if model.name is not None:
            yield model.name, ("models", number, "name")
    if task.score is not None and task.score.embedding is not None and task.score.embedding.model is not None:
        yield task.score.embedding.model, ("embedding", "model")


def _parcel(file: LocalFile, base_dir: Path) -> Parcel:
    if "\0" in file.text:
        raise _bad(f"{file.text!r} is not a path")
    if file.what == "data" and any(mark in file.text for mark in _GLOB) and not os.path.exists(base_dir / file.text):
        return _pattern(file, base_dir)
    path = _checked(base_dir / os.path.expanduser(file.text), base_dir, file.text)
    if path.is_file() and file.what != "model":
        if file.what == "folder":
            raise _bad(f"{file.text} is a file; a folder is expected here")
        if path.stat().st_size == 0:
            raise _bad(f"{file.text} is empty")
        return Parcel(file.path, file.text, path.name, {path.name: path}, single=True)
    if file.what == "template":
        raise _bad(f"{file.text} is a folder; the file of a template is expected here")
    name = path.resolve().name
    if file.what == "model":
        name = name_of(str(path.resolve()))  # what a server calls it
        path = _checked(_model_of(path, file.text), base_dir, file.text)
    files = {_name_below(path, each): _checked(each, base_dir) for each in files_below(path)}
    files.pop(MANIFEST, None)  # the manifest of a folder that Tuneyard has stored: the parcel gets its own
    if not files:
        raise _bad(f"{file.text} is an empty folder")
    return Parcel(file.path, file.text, name, files)


def _model_of(folder: Path, text: str) -> Path:
    """The folder of the model's own files. Raises BadInput for a folder without a model, and for an adapter whose base clusters cannot
    reach."""
    if (folder / "ranker.json").is_file() or (folder / MODULES).is_file():  # of an encoder, config.json may lie below
        return folder
    try:
        found = find_model(str(folder), checked=False)
    except BadInput as error:
        raise _bad(error.cause.replace(str(folder), text)) from error
    base = found.model_uri
    if found.adapter_uri is not None and (not base or (is_local(base) and not is_name(base))):
        whose = f"an adapter of {base}, a folder of this machine" if base else "an adapter that does not name its base model"
        raise _bad(f"{text} is {whose}: merge them (tuneyard merge), or give the URI of an adapter whose base is at a URI")
    return local_path(found.uri)


def _pattern(file: LocalFile, base_dir: Path) -> Parcel:
    """A parcel for a glob: a folder with the files that it matches here, and the pattern below the folder."""
    parts = Path(file.text).parts
    fixed = next(index for index, part in enumerate(parts) if any(mark in part for mark in _GLOB))
    folder, pattern = base_dir.joinpath(*parts[:fixed]), "/".join(parts[fixed:])
    try:
        matched = [path for path in sorted(folder.glob(pattern)) if path.is_file()]
    except (OSError, ValueError, NotImplementedError) as error:
        raise _bad(f"{file.text} is not a valid pattern: {error}") from error
    files = {_name_below(folder, path): _checked(path, base_dir) for path in matched}
    if not files:
        raise _bad(f"no file matches {file.text}")
    # Storage matches patterns by fnmatch: there `**` needs a folder, and here it does not.
    within = pattern if all(fnmatchcase(name, pattern) for name in files) else "*"
    return Parcel(file.path, file.text, folder.resolve().name, files, within=within)


def _checked(path: Path, base_dir: Path, text: str = "") -> Path:
    """The path, if it exists and lies below the JobSpec's folder after all links are followed. Raises BadInput."""
    shown = text or os.path.relpath(path, base_dir)
    try:
        inside = path.resolve().is_relative_to(base_dir.resolve())
    except (OSError, RuntimeError, ValueError) as error:  # a link to itself, a name too long
        raise _bad(f"{shown} cannot be read: {error}") from error
    if not inside:
        raise _bad(f"{shown} lies outside of the JobSpec's folder; only files below it are shipped")
    if not os.path.exists(path):
        there = sorted(os.listdir(path.parent)) if os.path.isdir(path.parent) else []
        near = get_close_matches(path.name, there, n=1, cutoff=0.5)
        raise _bad(f"{shown}: no such file or folder beside the JobSpec{f' (did you mean {near[0]}?)' if near else ''}")
    if path.is_symlink() and path.is_dir():
        raise _bad(f"{shown} is a link to a folder: name the folder itself")
    if not (path.is_file() or path.is_dir()):
        raise _bad(f"{shown} is neither a file nor a folder")
    if not os.access(path, os.R_OK):
        raise _bad(f"{shown} cannot be read: check its permissions")
    return path


def _name_below(folder: Path, path: Path) -> str:
    return Path(os.path.normpath(path)).relative_to(os.path.normpath(folder)).as_posix()


def _bad(cause: str) -> BadInput:
    return BadInput(cause, "")


def _problem(parcel: Parcel, reason: str) -> Problem:
    return Problem(dotted(parcel.field), reason)


def dotted(field: Field) -> str:
    """`spec.tasks[0].train.data.source`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in field).removeprefix(".")


def _put(body: dict[str, Any], field: Field, value: str) -> None:
    here: Any = body
    for part in field[:-1]:
        here = here[part]
    here[field[-1]] = value


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
