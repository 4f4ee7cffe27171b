"""Builds the scheduler's native core: as part of a wheel or an editable install, and by `python hatch_build.py` after a change of it.

Where it cannot be built, the install is complete without it: the scheduler is then the Python one, which decides the same and is slower.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run as a script
    BuildHookInterface = object

ROOM = Path(__file__).resolve().parent / "platform" / "tuneyard" / "federation"
CORE = ROOM / "_core.abi3.so"
FLAGS = (
    "-std=c++17",
    "-O2",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=off",  # no fused multiply-add: sums are equal to Python's to the last bit
    *(("-bundle", "-undefined", "dynamic_lookup") if sys.platform == "darwin" else ("-shared",)),
)


def build_core() -> str:
    """Compile the core into its room. Returns why that could not be done; empty where it was."""
    compiler = shlex.split(os.environ.get("CXX", "")) or ["c++"]
    command = [*compiler, *FLAGS, f"-I{sysconfig.get_paths()['include']}"]
    made = CORE.with_name(f"{CORE.name}.{os.getpid()}")
    try:
        kept = _kept(command)
        if kept.exists():
            shutil.copyfile(kept, made)
        else:
            command += [str(ROOM / "core" / "module.cpp"), "-o", str(made)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                return f"{shlex.join(command)} says:\n{done.stderr[-2000:]}"
            _keep(made, kept)
        made.replace(CORE)  # whoever has the old one loaded keeps it
    except OSError as error:
        return f"{shlex.join(command)}: {error}"
    finally:
        made.unlink(missing_ok=True)
    return ""


def _kept(command: list[str]) -> Path:
    """Where the core of these sources is kept, built by this command: it takes a quarter of a minute."""
    compiler = subprocess.run([command[0], "-v"], capture_output=True, check=False).stderr
    of = hashlib.sha256(b"\0".join([compiler, *(part.encode() for part in command)]))
    for source in sorted((ROOM / "core").iterdir()):
        of.update(source.name.encode() + b"\0" + source.read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "tuneyard" / "core" / f"{of.hexdigest()[:16]}.so"


def _keep(made: Path, kept: Path) -> None:
    """Keep a build. Where that is not possible, the next is slow."""
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(made, kept.with_name(made.name))
        kept.with_name(made.name).replace(kept)
    except OSError:
        return


class CoreHook(BuildHookInterface):  # type: ignore[misc]
    """Asked by hatchling before it packs."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build, and say that the wheel is of this platform, for all versions of Python with the stable ABI of 3.11."""
        if self.target_name != "wheel":
            return
        problem = build_core()
        if problem:
            CORE.unlink(missing_ok=True)
            self.app.display_warning(f"the scheduler's core is left out, and the Python scheduler decides instead: {problem}")
            return
        if version != "editable":
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["artifacts"].append(str(CORE.relative_to(self.root)))
            build_data["pure_python"] = False
            build_data["tag"] = f"cp311-abi3-{platform}"


if __name__ == "__main__":
    said = build_core()
    if said:
        print(f"setup: the scheduler's core could not be built, and the Python scheduler decides instead: {said}", file=sys.stderr)
        print("setup: next: install a C++ compiler and Python's headers (g++ and python3-dev), then make setup", file=sys.stderr)
