"""How far code is spread: `python benchmarks/code_paths.py [--tree PATH ...]` prints one table of paths and one of rooms.

A path is one call into the product. *Files*: files of the product whose code runs. *Returns*: how often control enters a file that it has
left for another file before. Frames of one file that call each other do not count, nor does generated code (a dataclass's `__init__`).

Each `--tree` is measured in a process of its own with that checkout on its path, with the cases below and the builders of its own tests.
Another path is one more entry of `CASES`.
"""

from __future__ import annotations

import argparse
import ast
import atexit
import inspect
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("platform/tuneyard", "operators/tuneyard_operators")
Call = Callable[[], object]


@dataclass(frozen=True)
class CodePath:
    """What one call ran through, in the order of the first visit."""

    files: tuple[str, ...]
    returns: int


@dataclass(frozen=True)
class Room:
    """A folder of the product. `circular`: modules that import each other in a circle, at module level."""

    name: str
    files: int
    lines: int
    functions: int
    median: float
    p90: float
    circular: int


# --- one call


def code_path(call: Call, tree: Path) -> CodePath:
    """Run a call and count its files and its returns."""
    roots = tuple(f"{tree / package}/" for package in PACKAGES)
    stack: list[str] = []
    visited: dict[str, None] = {}
    current, returns = "", 0

    def enter(file: str) -> None:
        nonlocal current, returns
        if file and file != current:
            returns += file in visited
            visited[file] = None
            current = file

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            file = frame.f_code.co_filename
            stack.append(file if file.startswith(roots) else "")
            enter(stack[-1])
        elif event == "return" and stack:
            stack.pop()
            enter(next((file for file in reversed(stack) if file), ""))

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return CodePath(tuple(str(Path(file).relative_to(tree)) for file in visited), returns)


def place_one() -> Call:
    """One ask where two members have room. One of its kind was placed before."""
    from tests.builders.worlds import A100, ask, member

    from tuneyard.federation import Scheduler

    scheduler = Scheduler("tuneyard")
    scheduler.set_member(member("east", 8, 8))
    scheduler.set_member(member("west", 8, sku=A100))
    scheduler.add(ask("maps/a", 8))
    scheduler.cycle(0.0)
    scheduler.add(ask("maps/b", 8))
    return lambda: scheduler.cycle(1.0)


def place_by_quota() -> Call:
    """One ask of a team with quota, behind one that is kept room for."""
    from tests.builders.worlds import ask, member, running

    from tuneyard.federation import Scheduler, Team

    scheduler = Scheduler("tuneyard")
    scheduler.set_member(member("east", 8, 8, 8))
    scheduler.set_team(Team(name="t", quota={"h100-80gb": 24}, cohort="all"))
    hold = getattr(scheduler, "hold", None) or scheduler.set_attempt
    hold(running("maps/long", {"east-0": 8}, ends=100.0), 0.0)
    scheduler.add(ask("maps/large", 24))
    scheduler.add(ask("maps/small", 4, created=0.5, seconds=60.0))
    return lambda: scheduler.cycle(1.0)


def make_room() -> Call:
    """One ask for which an attempt of lower priority is preempted."""
    from tests.builders.worlds import ask, member, running

    from tuneyard.federation import Scheduler

    scheduler = Scheduler("tuneyard")
    scheduler.set_member(member("east", 8))
    hold = getattr(scheduler, "hold", None) or scheduler.set_attempt
    hold(running("maps/low", {"east-0": 8}, priority="low"), 0.0)
    scheduler.add(ask("maps/high", 8, priority="high"))
    return lambda: scheduler.cycle(1.0)


def reconcile() -> Call:
    """One look at a running job: its next status and actions (`advance`), without the API servers."""
    from tests.builders.attempts import NOON, goal, job, report, running, seen, status

    from tuneyard_operators.hub.lifecycle import advance
    from tuneyard_operators.hub.settings import Settings

    looks = {"bot-one-1": seen(report=report(phase="Running"))}
    before, settings = status(running()), Settings()
    if "decided" in inspect.signature(advance).parameters:
        from tuneyard_operators.hub.decisions import NOTHING_DECIDED

        return lambda: advance(goal(job()), before, looks, NOTHING_DECIDED, NOON, settings)
    return lambda: advance(goal(job()), before, looks, NOON, settings)  # trees before November 2026


def run_locally() -> Call:
    """A local run of one process task, from its check to its report; without the threads that it starts."""
    from tests.builders.attempts import job

    from tuneyard.runtime import run_job

    folder = Path(tempfile.mkdtemp(prefix="code-paths-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    task = {"name": "one", "process": {"command": ["sh", "-c", "echo done > $TUNEYARD_OUTPUT/made"]}}
    return lambda: run_job(job(tasks=[task]), base_dir=folder, out=str(folder / "out"))


def admit_one() -> Call:
    """Whether a hub takes a job: its goal, and what it asks of the scheduler."""
    from tests.builders.attempts import job, train

    from tuneyard.api import JobStatus
    from tuneyard_operators.hub.goals import goal_of
    from tuneyard_operators.rendering import Defaults

    try:
        from tuneyard.admission import ask_of
    except ImportError:  # trees before November 2026
        from tuneyard.cluster.asks import ask_of  # type: ignore[import-not-found,no-redef]
    one = job(tasks=[train("train", 8)])
    metadata = {"name": "bot", "namespace": "maps", "uid": "0123456789", "creationTimestamp": "2026-11-21T12:00:00Z"}
    item = {**one.to_yaml_dict(), "metadata": metadata}
    defaults = Defaults(output="s3://tuneyard/jobs", image="registry/tuneyard:1")

    def look() -> None:
        goal_of(item, defaults)
        ask_of(one, 0.0, "train", JobStatus(), ("a100-80gb", "h100-80gb"))

    look()  # what a hub remembers of settings is warm then
    return look


CASES: Mapping[str, Callable[[], Call]] = {
    "place one ask": place_one,
    "place beside a reservation": place_by_quota,
    "preempt for one ask": make_room,
    "one look at a job": reconcile,
    "admit one job": admit_one,
    "a local run": run_locally,
}


# --- rooms


def rooms(tree: Path) -> list[Room]:
    """All rooms of the product, by name."""
    found = []
    for package in PACKAGES:
        for folder in sorted({file.parent for file in (tree / package).rglob("*.py")}):
            found.append(room(folder, tree))
    return found


def room(folder: Path, tree: Path) -> Room:
    files = sorted(folder.glob("*.py"))
    trees = {file.stem: ast.parse(file.read_text()) for file in files}
    lengths = sorted(length for parsed in trees.values() for length in function_lengths(parsed)) or [0]
    name = ".".join(folder.relative_to(tree).parts[1:])
    known = {*trees, *(file.stem for file in folder.glob("*.pyi")), *(each.name for each in folder.iterdir() if each.is_dir())}
    imports = {stem: set(imported(parsed, name, known)) for stem, parsed in trees.items()}
    return Room(
        name=name,
        files=len(files),
        lines=sum(len(file.read_text().splitlines()) for file in files),
        functions=len(lengths),
        median=statistics.median(lengths),
        p90=lengths[min(len(lengths) - 1, round(0.9 * (len(lengths) - 1)))],
        circular=sum(stem in reachable(stem, imports) for stem in trees),
    )


def function_lengths(parsed: ast.Module) -> Iterator[int]:
    for node in ast.walk(parsed):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1


def imported(parsed: ast.Module, package: str, names: Set[str]) -> Iterator[str]:
    """Modules of a package, among `names`, that one of them imports when it is loaded. Imports for type checkers are left out."""
    waiting: list[ast.AST] = list(parsed.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or (
            isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        ):
            continue
        if isinstance(node, ast.ImportFrom) and node.module == package:
            inside = {alias.name for alias in node.names} & names
            yield from inside or {"__init__"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{package}."):
            yield from {(node.module or "").removeprefix(f"{package}.").split(".")[0]} & names
        waiting += ast.iter_child_nodes(node)


def reachable(start: str, imports: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = list(imports[start])
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += imports.get(name, ())
    return found


# --- the tables


def measure(tree: Path) -> dict[str, object]:
    """All figures of this process's checkout."""
    paths = {name: code_path(make(), tree) for name, make in CASES.items()}
    return {
        "paths": {name: [list(path.files), path.returns] for name, path in paths.items()},
        "rooms": {each.name: [each.files, each.lines, each.functions, each.median, each.p90, each.circular] for each in rooms(tree)},
    }


def measured(tree: Path) -> dict[str, dict[str, list[object]]]:
    """All figures of a checkout, from a process of its own."""
    path = os.pathsep.join(map(str, (tree, *(tree / Path(package).parts[0] for package in PACKAGES))))
    command = [sys.executable, str(Path(__file__).resolve()), "--here", str(tree)]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path, "TUNEYARD_NATIVE": "0"}, check=True, capture_output=True, text=True
    )
    found: dict[str, dict[str, list[object]]] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tree", type=Path, action="append", help="a checkout to measure; repeat it to compare; default: this one")
    parser.add_argument("--room", default="", help="only rooms whose name contains this")
    parser.add_argument("--files", action="store_true", help="list the files of each path too")
    parser.add_argument("--here", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        print(json.dumps(measure(given.here)))
        return
    trees = [tree.resolve() for tree in given.tree or [ROOT]]
    figures = [measured(tree) for tree in trees]
    for number, tree in enumerate(trees):
        print(f"{number + 1}: {tree}")
    print("\n| path | files | returns |\n|---|---:|---:|")
    for name in CASES:
        columns = [[len(found["paths"][name][0]), found["paths"][name][1]] for found in figures]  # type: ignore[arg-type]
        print("| " + " | ".join([name, *(" -> ".join(map(str, column)) for column in zip(*columns, strict=True))]) + " |")
        for found in figures if given.files else ():
            print("  " + ", ".join(map(str, found["paths"][name][0])))  # type: ignore[call-overload]
    print("\n| room | files | lines | functions | lines of one, median | p90 | circular |\n|---|---:|---:|---:|---:|---:|---:|")
    for name in sorted(set().union(*(found["rooms"] for found in figures))):
        if given.room in name:
            columns = [found["rooms"].get(name, ["-"] * 6) for found in figures]
            print("| " + " | ".join([name, *(" -> ".join(map(str, column)) for column in zip(*columns, strict=True))]) + " |")


if __name__ == "__main__":
    main()
