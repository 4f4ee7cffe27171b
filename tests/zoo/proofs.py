"""Tests that have passed with exactly these inputs, kept in the user's cache: the next run takes their word.

For tests of what classes of transformers do in Tuneyard's code: their inputs are the packages that are installed, Python, the kind of
machine, and the source that the test reaches, which is files of `tests` and `benchmarks` by their imports, and rooms of `tuneyard` whole.
Only a pass is kept. TUNEYARD_NO_PROOF_CACHE=1 proves all of them anew; long tests are always run.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec

from tests.servers.installed import CACHE
from tests.suite.imports import Imports

ROOT = Path(__file__).parents[2]
PRODUCT = ROOT / "platform" / "tuneyard"
PROOFS = CACHE / "proofs"
P = ParamSpec("P")


def proven_once(test: Callable[P, None]) -> Callable[P, None]:
    """The test, passed at once where a proof of it is kept."""
    file = Path(inspect.getfile(test))
    inputs = _inputs_now(file)

    @functools.wraps(test)
    def proven(*args: P.args, **kwargs: P.kwargs) -> None:
        if os.environ.get("TUNEYARD_NO_PROOF_CACHE"):
            return test(*args, **kwargs)
        name = os.environ["PYTEST_CURRENT_TEST"].removesuffix(" (call)")
        proof = PROOFS / hashlib.sha256(f"{name} {inputs}".encode()).hexdigest()
        if proof.exists():
            print(f"passed before with the same inputs: {proof}")
            return None
        test(*args, **kwargs)
        if _inputs(file) == inputs:  # nobody has written a file meanwhile, which a rank may have loaded
            PROOFS.mkdir(parents=True, exist_ok=True)
            proof.write_text(f"{name}\n")
        return None

    return proven


def _inputs(file: Path) -> str:
    """A digest of everything that a test in `file` depends on."""
    packages = {found.name for folder in sys.path for found in Path(folder).glob("*.dist-info")}
    digest = hashlib.sha256(f"{platform.python_version()} {platform.machine()} {sorted(packages)}".encode())
    for source in sorted(sources_of(file)):
        digest.update(str(source.relative_to(ROOT)).encode() + hashlib.sha256(source.read_bytes()).digest())
    return digest.hexdigest()


_inputs_now = functools.cache(_inputs)
"""As tests are collected."""


def sources_of(file: Path) -> set[Path]:
    """A file of tests, and all that it reaches. Rooms of the product are taken whole, with their data: their doors import by name."""
    imports = _imports()
    reached = imports.reached(name for name, path in imports.modules.items() if path == file)
    rooms: set[str] = set()
    while new := {".".join(name.split(".")[:2]) for name in reached if name.startswith("tuneyard.")} - rooms:
        rooms |= new
        reached = imports.reached({*reached, *(name for name in imports.modules if ".".join(name.split(".")[:2]) in new)})
    folders = (PRODUCT / room.partition(".")[2] for room in rooms)
    data = {each for folder in folders for each in folder.rglob("*") if each.is_file() and each.suffix not in (".pyc", ".so")}
    return {imports.modules[name] for name in reached} | data


@functools.cache
def _imports() -> Imports:
    return Imports()
