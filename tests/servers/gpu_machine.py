"""A Python like that of a machine with a GPU and without network: torch and transformers are there, in its versions, and Ray, vLLM,
DeepSpeed and pydantic are not. On a processor, it imports and trains as that one does."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.servers.gpu_packages import ROOT, UV, locked
from tests.servers.installed import call, made_once

ITS_OWN = (
    *("torch==2.11.0", "triton==3.6.0", "transformers==5.17.0", "tokenizers==0.23.2", "safetensors==0.8.0", "huggingface-hub==1.33.0"),
    *("accelerate==1.15.0", "peft==0.21.2", "numpy==2.5.2"),
)
"""What it has in versions of its own."""
_LIKE_OURS = (
    *("aiohappyeyeballs", "aiohttp", "aiosignal", "annotated-doc", "anyio", "attrs", "certifi", "charset-normalizer", "click"),
    *("cloudpickle", "einops", "filelock", "frozenlist", "fsspec", "h11", "hf-xet", "httpcore", "httpx", "hypothesis", "idna"),
    *("iniconfig", "jinja2", "markdown-it-py", "markupsafe", "mdurl", "mpmath", "msgpack", "multidict", "networkx", "ninja", "packaging"),
    *("pandas", "pluggy", "propcache", "psutil", "py-cpuinfo", "pyarrow", "pygments", "pytest", "pytest-timeout", "python-dateutil"),
    *("pyyaml", "regex", "requests", "rich", "setuptools", "shellingham", "six", "sortedcontainers", "sympy", "tqdm", "typer"),
    *("typing-extensions", "urllib3", "xxhash", "yarl"),
)
"""What it has too, here in the versions of the lock file."""
WHEELS = ROOT / "scripts" / "gpu_wheels.sh"


def imitated_python() -> str:
    """Its Python, in an environment that is kept in the user's cache."""
    base, lock = _python_312(), locked("cpu")
    names = [*_LIKE_OURS, *(name for name in lock if name.startswith("nvidia-"))]
    wanted = "".join(lock[name] for name in names)

    def install(folder: Path) -> None:
        (folder / "locked.txt").write_text(wanted)
        call([UV, "venv", "--quiet", "--seed", "--relocatable", "--python", base, str(folder / "env")])
        install = [UV, "pip", "install", "--quiet", "--no-deps", "--python", str(folder / "env/bin/python")]
        call([*install, *ITS_OWN])
        call([*install, "--require-hashes", "-r", str(folder / "locked.txt")])

    key = hashlib.sha256(f"{base} {ITS_OWN} {wanted}".encode()).hexdigest()[:12]
    return str(made_once(f"gpu-machine-{key}", install) / "env" / "bin" / "python")


def carried_wheels() -> Path:
    """What `scripts/gpu_wheels.sh` fetches, kept in the user's cache."""
    key = hashlib.sha256(WHEELS.read_bytes() + (ROOT / "requirements" / "gpu.txt").read_bytes()).hexdigest()[:12]
    return made_once(f"gpu-wheels-{key}", lambda folder: call(["bash", str(WHEELS), str(folder / "whl")])) / "whl"


def _python_312() -> str:
    """A Python 3.12 of this machine. Skips the test where there is none."""
    pyenv = sorted(Path("~/.pyenv/versions").expanduser().glob("3.12.*/bin/python3.12"))
    for found in (shutil.which("python3.12"), *map(str, pyenv)):
        if found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
            return found
    pytest.skip("NO PYTHON 3.12: the check was not tried in an environment like a GPU machine's")
