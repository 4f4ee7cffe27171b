"""From files to models. All problems of a file are reported at once, each with its line, its path and the expected value.

1. `loading_yaml` reads the YAML with the place of each value.
2. The defaults of the ModelTemplate are filled in.
3. pydantic validates, and `loading_reasons` puts its errors into words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from tuneyard.api.base import API_VERSION, Resource
from tuneyard.api.cluster import Cluster
from tuneyard.api.errors import BadInput
from tuneyard.api.jobspec import JobSpec
from tuneyard.api.loading_reasons import did_you_mean, explain, nearest
from tuneyard.api.loading_yaml import Path, Problem, Tree, read_trees
from tuneyard.api.quoting import quoted
from tuneyard.api.rules import Violation, check_rules
from tuneyard.api.rules_case import Device
from tuneyard.api.schedule import ModelTemplate, Schedule
from tuneyard.api.team import Team
from tuneyard.api.templates import Filled, FindTemplate, filled, folder_of, named, no_template, said_by, template_of, template_problems

KINDS: dict[str, type[Resource]] = {
    "JobSpec": JobSpec,
    "Cluster": Cluster,
    "Team": Team,
    "Schedule": Schedule,
    "ModelTemplate": ModelTemplate,
}
_ROOTS: dict[str, tuple[str, ...]] = {"JobSpec": ("spec",), "Schedule": ("spec", "template", "spec")}
"""Path of a job's spec, by kind."""
MAX_FILE_BYTES = 1_000_000  # an API server refuses objects of about 1.5 MB


@dataclass(frozen=True)
class Document:
    """One object of a file, with its lines. `tree` is as written; `value` has its template's defaults."""

    filename: str
    resource: Resource
    tree: Tree
    value: Any

    def complaint(self, path: Path, reason: str) -> str:
        """`file:line:col: path: reason`, for problems that only other rooms can find, such as an unknown SKU."""
        return Problem(self.tree.place(path), path, reason).line(self.filename)


def load_jobspec(path: FilePath, find: FindTemplate = no_template) -> JobSpec:
    """The JobSpec in a file, with the defaults of its template. The template is in the same file, or comes from `find`.

    Raises BadInput. Its cause has one line per problem: `file:line:col: path: reason (did you mean …?)`.
    """
    documents = [document for document in load_documents(path, find) if not isinstance(document.resource, ModelTemplate)]
    if not documents:
        raise BadInput(f"{path}: holds ModelTemplates, and no JobSpec", "give the file of a job; templates are given by --templates")
    if len(documents) != 1:
        kinds = ", ".join(_kind_of(document.resource) for document in documents)
        raise BadInput(f"{path}: holds {len(documents)} objects ({kinds}), one is expected here", "split the file at its `---` lines")
    resource = documents[0].resource
    if not isinstance(resource, JobSpec):
        raise BadInput(f"{path}: holds a {_kind_of(resource)}, not a JobSpec", "give a file with `kind: JobSpec`")
    return resource


def load_documents(path: FilePath, find: FindTemplate = no_template) -> list[Document]:
    """All objects in a file, of any kind. Raises BadInput as `load_jobspec` does."""
    return parse_documents(read_file(path), str(path), find)


def load_templates(path: FilePath) -> dict[str, ModelTemplate]:
    """The ModelTemplates in a file by name; other kinds are skipped. Raises BadInput as `load_jobspec` does."""
    trees, problems = read_trees(read_file(path))
    found, wrong = _templates_in(trees)
    _refuse(problems + wrong, str(path))
    return found


def parse(text: str, filename: str) -> list[Resource]:
    """All objects in `text`. Errors name `filename`. Raises BadInput as `load_jobspec` does."""
    return [document.resource for document in parse_documents(text, filename)]


def parse_documents(text: str, filename: str, find: FindTemplate = no_template) -> list[Document]:
    """All objects in `text` with their lines; at least one. Templates in `text` take precedence over `find`. Raises BadInput as
    `load_jobspec` does.
    """
    trees, problems = read_trees(text)
    if not trees and not problems:
        raise BadInput(f"{filename}: the file is empty", "start from an example in jobspecs/, such as jobspecs/quickstart.yaml")
    here, unusable = _templates_in(trees)
    problems += [problem for problem in unusable if problem.path == ("metadata", "name")]
    documents: list[Document] = []
    for tree in trees:
        value, template, wrong = _filled(tree.value, lambda name: here[name] if name in here else find(name))
        if wrong and template is None and unusable:
            continue  # problems of the template are reported at its own lines
        problems += [Problem(tree.place(path), path, reason) for path, reason in wrong]
        if wrong and template is None:
            continue  # without its template, missing fields are unknown
        resource, wrong_too = _validate(tree, value, template)
        problems += wrong_too
        if resource is not None:
            documents.append(Document(filename, resource, tree, value))
    _refuse(problems, filename)
    return documents


def _refuse(problems: list[Problem], filename: str) -> None:
    """Raises BadInput with a line for each problem, if there are any."""
    if problems:
        ordered = sorted(problems, key=lambda problem: (problem.place.line, problem.place.column))
        lines = dict.fromkeys(problem.line(filename) for problem in ordered)
        raise BadInput("\n".join(lines), f"correct the file, then check it: tuneyard validate {quoted(filename)}")


def _templates_in(trees: list[Tree]) -> tuple[dict[str, ModelTemplate], list[Problem]]:
    found: dict[str, ModelTemplate] = {}
    problems: list[Problem] = []
    for tree in trees:
        value = tree.value if isinstance(tree.value, dict) else {}
        listed = (
            value["items"] if value.get("kind") == "List" and isinstance(value.get("items"), list) else None
        )  # as kubectl prints several
        for each in [value] if listed is None else listed:
            if not isinstance(each, dict) or each.get("kind") != "ModelTemplate":
                continue
            resource, wrong = _validate(tree, each, None)
            problems += wrong
            if isinstance(resource, ModelTemplate):
                if resource.metadata.name in found:
                    path = ("metadata", "name")
                    problems.append(Problem(tree.place(path), path, f"a second ModelTemplate {resource.metadata.name} in this file"))
                found[resource.metadata.name] = resource
    return found, problems


def _filled(value: Any, find: FindTemplate) -> tuple[Any, ModelTemplate | None, list[tuple[Path, str]]]:
    """An object with its template's defaults, that template, and the problems of filling it in."""
    kind = value.get("kind") if isinstance(value, dict) else None
    root = _ROOTS.get(kind, ()) if isinstance(kind, str) else ()
    spec: Any = value
    for step in root:
        spec = spec.get(step) if isinstance(spec, dict) else None
    name = template_of(spec) if root else ""
    if not name:
        return value, None, []
    try:
        template = find(name)
    except BadInput as error:
        return value, None, [((*root, "template"), f"{error.cause}; {error.next_step}")]
    made: Filled = filled(spec, name, template.spec, folder_of(value.get("metadata")))
    whole = {**value, "metadata": named(value.get("metadata"), name)} if kind == "JobSpec" else value
    return _with(whole, root, made.spec), template, [((*root, *path[1:]), reason) for path, reason in made.problems]


def _with(value: dict[str, Any], root: tuple[str, ...], inner: Any) -> dict[str, Any]:
    """A copy of `value` with `inner` at `root`."""
    first, *rest = root
    return {**value, first: _with(value[first], tuple(rest), inner) if rest else inner}


def unreadable(path: FilePath, error: Exception) -> BadInput:
    """The refusal of a file that cannot be read, with the nearest name beside it where there is none of this name."""
    if not isinstance(error, FileNotFoundError):
        return BadInput(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}", "check the path and its permissions")
    siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    best = nearest(path.name, siblings)
    return BadInput(f"{path}: no such file", f"did you mean {path.parent / best}?" if best else "check the path")


def read_file(path: FilePath) -> str:
    """The text of a file. Raises BadInput if it cannot be read."""
    if path.is_dir():
        found = sorted(entry.name for entry in path.iterdir() if entry.suffix in (".yaml", ".yml"))
        hint = f"give one of its files: {', '.join(found[:5])}" if found else "give the path of a YAML file"
        raise BadInput(f"{path}: is a folder, not a file", hint)
    try:
        content = path.read_bytes() if path.stat().st_size <= MAX_FILE_BYTES else None
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if content is None:
        raise BadInput(
            f"{path}: is larger than {MAX_FILE_BYTES:,} bytes", "give a JobSpec; data sets are named in it, not given instead of it"
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: is not a text file in UTF-8 (byte {error.start})", "give a YAML file") from None
    if "\0" in text:
        raise BadInput(f"{path}: is a binary file", "give a YAML file")
    return text


def rule_violations(resource: Resource, devices: Mapping[str, Device] | None = None) -> list[Violation]:
    """Violations of the rules by the job of an object: a JobSpec, or a Schedule's template. Paths start at the top of the object."""
    if isinstance(resource, JobSpec):
        return check_rules(resource, devices)
    if isinstance(resource, Schedule):
        job = JobSpec(metadata=resource.metadata, spec=resource.spec.template.spec)
        return [replace(found, path=("spec", "template", *found.path)) for found in check_rules(job, devices)]
    return []


def _validate(tree: Tree, value: Any, template: ModelTemplate | None) -> tuple[Resource | None, list[Problem]]:
    """The object for `value` (the tree's value with the defaults of `template`), or the problems that prevent it."""
    problems = list(tree.problems)

    def refuse(path: Path, reason: str) -> None:
        problems.append(Problem(tree.place(path), path, reason))

    if not isinstance(value, dict):
        if not problems:
            refuse((), "not a mapping: a file starts with `apiVersion:`, `kind:`, `metadata:` and `spec:` lines")
        return None, problems
    model = _model_for(value, refuse)
    if model is None:
        return None, problems
    refused_already = {problem.path for problem in problems}
    try:
        resource = model.model_validate(value)
    except ValidationError as error:
        for path, reason in explain(error, model, value):
            if path not in refused_already:
                refuse(path, reason + _origin(tree, template, path))
        return None, problems
    for violation in rule_violations(resource):
        refuse(violation.path, violation.reason + _origin(tree, template, violation.path))
    for path, reason in template_problems(resource.spec) if isinstance(resource, ModelTemplate) else ():
        refuse(path, reason)
    return (None if problems else resource), problems


def _origin(tree: Tree, template: ModelTemplate | None, path: Path) -> str:
    """Description of the place of a wrong value that is in no line of the file."""
    if template is None:
        return ""
    root = _ROOTS[tree.value["kind"]]
    inside: Any = tree.value
    for step in root:
        inside = inside[step]
    return said_by(template.metadata.name, template.spec, ("spec", *path[len(root) :]), inside.get("tasks"))


def _model_for(value: dict[str, Any], refuse: Callable[[Path, str], None]) -> type[Resource] | None:
    """The model of a document's kind. If there is none, `refuse` gets the reason."""
    version, kind = value.get("apiVersion"), value.get("kind")
    if version != API_VERSION:
        refuse(("apiVersion",), f"missing: write {API_VERSION}" if version is None else f"{version!r} is unknown: write {API_VERSION}")
    if kind is None:
        refuse(("kind",), f"missing: one of {', '.join(KINDS)}")
        return None
    if not isinstance(kind, str) or kind not in KINDS:
        refuse(("kind",), f"{kind!r} is none of: {', '.join(KINDS)}{did_you_mean(kind, KINDS)}")
        return None
    return KINDS[kind]


def _kind_of(resource: Resource) -> str:
    return type(resource).__name__
