"""What is wrong with a command of a page: a verb, an option, a target, a value or a file that does not exist."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer
from scripts.charts import CHARTS, leaves, values_schema
from tests.unit.docs.commands import PROGRAMS, PYTHONS, Line, lines_of
from tests.unit.docs.markdown import ROOT, Block, Page
from typer.exceptions import TyperException
from typer.main import get_command

from tuneyard.api.loading import KINDS
from tuneyard.api.schema import MEMBER_KINDS, crd
from tuneyard.cli.commands import COMMANDS
from tuneyard.cli.kubectl import VERBS

_OWN_PATH = re.compile(r"^(jobspecs|charts|docker|docs|tests|scripts|benchmarks|requirements|operators|platform)/[\w./*-]+$")
_KUBECTL = {
    *("apply", "auth", "config", "cordon", "create", "delete", "describe", "drain", "explain", "get", "label", "logs", "patch"),
    *("port-forward", "rollout", "top", "uncordon", "wait", "exec", "annotate"),
}
_BUILT_IN = {
    "apiservice",
    "crd",
    "deployment",
    "events",
    "namespace",
    "namespaces",
    "networkpolicies",
    "node",
    "nodes",
    "pod",
    "pods",
    "rayjobs",
}
_BUILT_IN |= {"secret", "secrets"}
_HELM = {"install", "upgrade", "uninstall", "get", "template", "list", "repo", "status"}


def complaints(line: Line) -> Iterator[str]:
    """One text per thing that is wrong."""
    yield from (f"there is no file {word}" for word in line.argv if not own_path_exists(word))
    check = _CHECKS.get(Path(line.program).name)
    if check is not None:
        yield from check(line)


def own_path_exists(word: str) -> bool:
    """False for what looks like a path of this repository and is none."""
    path = word.partition("=")[2] if word.startswith("--") else word
    # jobspecs/status.tuneyard.dev is a resource, as is jobspecs/log
    if not _OWN_PATH.match(path) or path.endswith(".tuneyard.dev") or path == "jobspecs/log":
        return True
    return any(ROOT.glob(path.rstrip("/"))) if "*" in path else (ROOT / path).exists()


def _tuneyard(line: Line) -> Iterator[str]:
    yield from _cli(list(line.argv[1:]), line.partial)


def _cli(argv: list[str], partial: bool) -> Iterator[str]:
    """`tuneyard` with these arguments, by its own parser. A partial line may lack arguments."""
    argv = [word for word in argv if word not in ("--help", "--debug", "--version")]
    if not argv:
        return
    parser = _parsers().get(argv[0])
    if parser is None:
        near = get_close_matches(argv[0], list(_parsers()), n=1)
        yield f"tuneyard has no command {argv[0]!r}" + (f"; did you mean {near[0]}?" if near else "")
        return
    name, rest = argv[0], argv[1:]
    if hasattr(parser, "commands"):
        if not rest:
            return
        if rest[0] not in parser.commands:
            yield f"tuneyard {name} has no command {rest[0]!r}, it has {', '.join(parser.commands)}"
            return
        parser, name, rest = parser.commands[rest[0]], f"{name} {rest[0]}", rest[1:]
    try:
        parser.make_context(name, list(rest))
    except TyperException as error:
        if not (partial and type(error).__name__ in ("MissingParameter", "BadOptionUsage")):
            yield f"tuneyard {name}: {error.format_message()}"


@cache
def _parsers() -> Mapping[str, Any]:
    """Each command's own parser, as the command line builds it."""
    found: dict[str, Any] = {}
    for command in COMMANDS:
        module, _, name = command.target.partition(":")
        target = getattr(import_module(module), name)
        if not isinstance(target, typer.Typer):
            app = typer.Typer(add_completion=False, rich_markup_mode=None)
            app.command(command.name)(target)
            target = app
        found[command.name] = get_command(target)
    return found


def _kubectl(line: Line) -> Iterator[str]:
    words = [word for word in line.argv[1:] if not word.startswith("-")]
    if not words:
        return
    if words[0] == "tuneyard":
        if words[1:] and words[1] not in VERBS:
            yield f"kubectl tuneyard has no command {words[1]!r}, it has {', '.join(VERBS)}"
        elif words[1:]:
            yield from _cli(list(line.argv[2:]), line.partial)
    elif words[0] not in _KUBECTL and words[0] not in ("hub.yaml",) and not line.argv[1].startswith("-"):
        yield f"kubectl has no command {words[0]!r} (or _KUBECTL in tests/unit/docs/checking.py lacks it)"
    elif words[0] in ("get", "describe", "delete", "patch", "explain") and words[1:] and "--raw" not in line.argv:
        for kind in words[1].partition("/")[0].split(","):
            plain = kind.removesuffix(".tuneyard.dev").partition(".")[0]
            if plain not in _BUILT_IN | _resources():
                yield f"there is no kind {kind!r} (or _BUILT_IN in tests/unit/docs/checking.py lacks it)"


@cache
def _resources() -> frozenset[str]:
    names = [crd(kind)["spec"]["names"] for kind in (*KINDS, *MEMBER_KINDS)]
    return frozenset(word for each in names for word in (each["plural"], each["singular"], *each["shortNames"], *each["categories"]))


def _make(line: Line) -> Iterator[str]:
    rules = re.findall(r"^([\w-]+):(?!=)", (ROOT / "Makefile").read_text(), re.M)
    words = [word for word in line.argv[1:] if "=" not in word and not word.startswith("-")]
    yield from (f"the Makefile has no target {word!r}" for word in words if word not in rules)
    given = [word for word in line.argv[1:] if "=" in word]
    if given and set(words) <= set(rules):
        yield from _recipe(line, (*words, *given))


def _recipe(line: Line, words: tuple[str, ...]) -> Iterator[str]:
    """What make would run, checked in turn."""
    done = subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        yield done.stderr.strip()
    recipe = Page(line.where, f"```\n{done.stdout}```\n")
    for each in lines_of(recipe):
        yield from complaints(each)


def _python(line: Line) -> Iterator[str]:
    argv = list(line.argv)
    if argv[0] == "torchrun":
        argv = argv[argv.index("-m") - 1 :] if "-m" in argv else argv
    if len(argv) > 2 and argv[1] == "-m":
        source, options, name = _sources_of_module(argv[2]), argv[3:], argv[2]
    elif len(argv) > 1 and argv[1].endswith(".py"):
        path = ROOT / argv[1]
        source, options, name = path.read_text() if path.exists() else None, argv[2:], argv[1]
    else:
        return
    if source is None:
        yield f"there is no module or script {name}"
        return
    if name in ("pytest", "pip", "venv"):
        return
    for option in (word.partition("=")[0] for word in options if word.startswith("--")):
        if f'"{option}"' not in source:
            yield f"{name} has no option {option}"


def _sources_of_module(name: str) -> str | None:
    """The text of a module, or of all modules beside a package's `__main__`."""
    try:
        spec = find_spec(name)
    except ModuleNotFoundError:
        return None
    if spec is None:
        return None
    if spec.submodule_search_locations is None:
        return Path(str(spec.origin)).read_text()
    files = [file for folder in spec.submodule_search_locations for file in sorted(Path(folder).glob("*.py"))]
    return "\n".join(file.read_text() for file in files) if any(file.name == "__main__.py" for file in files) else None


def _helm(line: Line) -> Iterator[str]:
    if len(line.argv) > 1 and line.argv[1] not in _HELM:
        yield f"helm has no command {line.argv[1]!r}"
    charts = [path.name for path in CHARTS.iterdir() if f"charts/{path.name}" in line.argv or path.name in line.argv]
    if not charts:
        return
    known = {path for path, _, _ in leaves(values_schema(charts[0]), {})} | {"selfMember.enabled"}
    for place, word in enumerate(line.argv[:-1]):
        key = line.argv[place + 1].partition("=")[0]
        if word == "--set" and key not in known and not any(key.startswith(f"{path}.") for path in known):
            yield f"the chart {charts[0]} has no value {key}"


def _pip(line: Line) -> Iterator[str]:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"].get("optional-dependencies", {})
    for word in line.argv[1:]:
        for extra in re.findall(r"^(?:\.|tuneyard)\[([\w,-]+)\]", word):
            yield from (f"the package has no extra {name!r}" for name in extra.split(",") if name not in extras)


_CHECKS = {"tuneyard": _tuneyard, "kubectl": _kubectl, "make": _make, "helm": _helm, "pip": _pip, "torchrun": _python}
_CHECKS |= {Path(name).name: _python for name in PYTHONS}


def block_complaints(block: Block) -> Iterator[str]:
    """A `bash` block holds commands: each line starts with a program that the test knows."""
    if block.language == "bash":
        lines = re.sub(r"\\\n", " ", block.text).splitlines()
        starts = [words[0] for line in lines if (words := line.split()) and not line.startswith((" ", "#", "|"))]
        yield from (
            f"{word} is not known: name it in tests/unit/docs/commands.py"
            for word in starts
            if "=" not in word and word not in (*PROGRAMS, "$")
        )
