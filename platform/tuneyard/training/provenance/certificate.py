"""`provenance.json` of a model folder: what the model was made from, how, and what was proven of it.

It names the URIs of base and data, and hashes of their content. Another person can check the hashes, and train parts of the run again.
"""

from __future__ import annotations

import functools
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tuneyard import __version__
from tuneyard.api import BadInput, StorageError, TrainTask
from tuneyard.api.local_files import looks_like_path
from tuneyard.planning import Plan
from tuneyard.storage import MANIFEST, Commit
from tuneyard.storage.folders import in_parallel
from tuneyard.storage.marks import hash_of, model_marks
from tuneyard.training.request import TrainRequest

FILE = "provenance.json"
SIGNATURE = "model.sig"
FORMAT = 1
_PACKAGES = ("torch", "transformers", "accelerate", "peft", "deepspeed", "bitsandbytes", "tokenizers", "liger-kernel", "flash-attn")


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """`request`: as of `request_to_dict`. `files` and `base`: SHA-256 by path. `data`: cursors and contents at the last step. `step`: whose
    weights the model holds. `checkpoints`: step -> name and SHA-256 of its manifest.
    """

    made: Mapping[str, Any]
    request: Mapping[str, Any]
    base: Mapping[str, str]
    data: Mapping[str, Any]
    step: int
    losses: Sequence[float]
    evaluations: Sequence[Any]
    checkpoints: Sequence[Mapping[str, Any]]
    versions: Mapping[str, str]
    proof: Mapping[str, Any]
    files: Mapping[str, str]

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **vars(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str) -> Certificate:
        """Raises StorageError for a damaged certificate, or one of a newer version."""
        try:
            values = json.loads(text)
            if values.pop("format") > FORMAT:
                raise StorageError(f"{where} was written by a newer Tuneyard", f"use that version: this one reads up to format {FORMAT}")
            made = cls(**values)
            if not made._is_sound():
                raise ValueError("a field holds something else")
            return made
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StorageError(f"{where} is damaged: {error!r}", "take the file from a copy of the model") from error

    @property
    def steps(self) -> list[int]:
        """Steps of the checkpoints that the run kept."""
        return [int(each["step"]) for each in self.checkpoints]

    def _is_sound(self) -> bool:
        """Whether the fields that are read have their types."""
        texts = all(isinstance(value, str) for hashes in (self.files, self.base) for item in hashes.items() for value in item)
        kept = all({"step", "name", "sha256"} <= each.keys() for each in self.checkpoints)
        known = {"task", "plan", "model_uri", "name", "job"} <= self.request.keys() and {"cursors", "contents"} <= self.data.keys()
        return (
            texts and kept and known and isinstance(self.step, int) and isinstance(self.losses, list) and isinstance(self.evaluations, list)
        )


@dataclass(frozen=True, kw_only=True)
class Origins:
    """What a certificate says of the run, collected before the model is saved."""

    data: Mapping[str, Any]
    step: int
    losses: Sequence[float]
    evaluations: Sequence[Any]
    commits: Sequence[Commit]


def write_certificate(folder: Path, request: TrainRequest, origins: Origins, *, base: Mapping[str, str], proof: Mapping[str, Any]) -> None:
    """Write the certificate of a model folder that is otherwise finished. `base`: of `base_hashes`."""
    certificate = Certificate(
        made={
            "by": f"tuneyard {__version__}",
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "job": request.job,
            "task": request.name,
            "attempt": request.attempt,
        },
        request=request_to_dict(request),
        base=base,
        data=origins.data,
        step=origins.step,
        losses=origins.losses,
        evaluations=origins.evaluations,
        checkpoints=[{"step": each.step, "name": each.name, "sha256": each.sha256} for each in origins.commits],
        versions=dict(_versions()),
        proof=dict(proof),
        files=file_hashes(folder),
    )
    (folder / FILE).write_text(certificate.to_json())


def file_hashes(folder: Path, *, hidden: bool = False) -> dict[str, str]:
    """SHA-256 of each file below a folder, but for the certificate, its signature and the manifest. `hidden`: of hidden files, too."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not _is_beside(path.relative_to(folder), hidden)]
    return dict(zip([str(path.relative_to(folder)) for path in files], in_parallel(hash_of, files), strict=True))


def base_hashes(request: TrainRequest, start: str) -> dict[str, str]:
    """Hashes of the files that a run started from: a folder, or a Hugging Face name in the local cache. Empty for weights that were made by
    the run itself, from its seed or from an adapter.
    """
    folder = local_base(request, start)
    return {} if folder is None else file_hashes(folder)


def base_marks(request: TrainRequest, start: str) -> dict[str, str]:
    """Marks of the configuration, code and weights that a run starts from, for its checkpoints: hashes of small files, and of samples of
    large ones. Empty as for `base_hashes`.
    """
    folder = local_base(request, start)
    return {} if folder is None else model_marks(folder)


def local_base(request: TrainRequest, start: str) -> Path | None:
    """The folder of the base; None if it is not there, or if the run has made its starting weights itself, or has none."""
    made_here = request.task.model.init == "scratch" or (request.adapter_uri is not None and request.task.method.name == "full")
    if made_here or not start:
        return None
    if Path(start).is_dir() or looks_like_path(start):
        return Path(start) if Path(start).is_dir() else None
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(start, revision=request.task.model.revision, local_files_only=True))
    except LocalEntryNotFoundError:  # transformers has found the files in another way
        return None


def request_to_dict(request: TrainRequest) -> dict[str, Any]:
    """The part of a request that decides what is trained."""
    return {
        "job": request.job,
        "name": request.name,
        "task": request.task.model_dump(mode="json", by_alias=True, exclude_unset=True),
        "plan": request.plan.to_dict(),
        "model_uri": request.model_uri,
        "adapter_uri": request.adapter_uri,
    }


def request_from_dict(values: Mapping[str, Any], *, output: str, scratch: str) -> TrainRequest:
    """The request again, with another output. Raises BadInput if this version cannot read it."""
    try:
        task, plan = TrainTask.model_validate(values["task"]), Plan.from_dict(values["plan"])
        return TrainRequest(**{**values, "task": task, "plan": plan, "output": output, "scratch": scratch})
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f"this version of Tuneyard cannot read the task of the certificate: {error}", "use the version that wrote it"
        ) from error


def _is_beside(path: Path, hidden: bool) -> bool:
    return str(path) in (FILE, SIGNATURE, MANIFEST) or (not hidden and any(part.startswith(".") for part in path.parts))


@functools.cache
def _versions() -> dict[str, str]:
    """Of what this process has loaded: once, as each version takes milliseconds to find."""
    found = {"python": platform.python_version(), "tuneyard": __version__}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
