"""Files of a checkpoint on storage.

    checkpoints/log/00000007.json             the commit log (storage.commits): which folders count
    checkpoints/model/                        configuration and tokenizer, once: `convert` needs them beside the weights
    checkpoints/step-120.5/                   step 120, by the attempt with fencing token 5
        rank-00001-00000.safetensors          pieces of rank 1
        rank-00001.json                       which pieces are in which file, sizes, hashes, random states (RankIndex)
        state.json                            progress, schedule, loss scale: the same for all ranks
        manifest.json                         written last, named by hash in the log: the files of all ranks

A piece is a run of elements of one flattened parameter: its values, and the optimizer's values for the same elements. Every layout cuts
parameters into pieces in some way (ZeRO partitions, or equal shares of replicas), so any layout can read the checkpoint of any other. A
parameter that is cut over tensor-parallel ranks is a box of the whole parameter, and its pieces are runs in that box. No file holds
pickles: reading a checkpoint runs no code of its writer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tuneyard.api import StorageError
from tuneyard.storage import ManifestFile, join

FOLDER = "checkpoints"
LOG = f"{FOLDER}/log"
MODEL = f"{FOLDER}/model"
STATE = "state.json"
FORMAT = 2
"""1: DeepSpeed's and torch's own files, the same layout only."""

Box = tuple[tuple[int, int], ...]
"""First index and length along each dimension of the whole parameter."""


def name_of(step: int, token: int) -> str:
    """Folder of a checkpoint, relative to the task's output. Each attempt has its own folders."""
    return f"{FOLDER}/step-{step}.{token}"


def step_and_token(path: str) -> tuple[int, int] | None:
    """Step and fencing token of any path inside a checkpoint's folder; None for other paths."""
    match = re.match(rf"{FOLDER}/step-(\d+)\.(\d+)(/|$)", path)
    return (int(match[1]), int(match[2])) if match else None


def index_name(rank: int) -> str:
    return f"rank-{rank:05d}.json"


def shard_name(rank: int, number: int | str) -> str:
    """`number` may be `*`, for a pattern of all shards of a rank."""
    return f"rank-{rank:05d}-{number:05d}.safetensors" if isinstance(number, int) else f"rank-{rank:05d}-{number}.safetensors"


def tensor_key(name: str, kind: str, box: Box, start: int) -> str:
    """Key of a piece's tensor in its shard. A rank may have several boxes of a parameter: its share of each part of a fused one."""
    corner = [first for first, _ in box]
    return "|".join([name, kind, *([",".join(map(str, corner))] if any(corner) else []), str(start)])


def whole(shape: tuple[int, ...]) -> Box:
    """The box that is all of a parameter."""
    return tuple((0, length) for length in shape)


@dataclass(frozen=True)
class PieceEntry:
    """Elements `start` to `stop` (exclusive) of the flattened `box` of a parameter, in file number `file` of its rank."""

    name: str
    shape: tuple[int, ...]
    box: Box
    start: int
    stop: int
    kinds: tuple[str, ...]
    """`weight`, and the names of the optimizer's states: exp_avg, exp_avg_sq, …"""
    file: int


@dataclass(frozen=True)
class OpaqueEntry:
    """A tensor that belongs to one layout and cannot be re-cut, such as the blocks of an 8-bit optimizer."""

    key: str
    file: int


@dataclass(frozen=True, kw_only=True)
class RankIndex:
    """Files and pieces of one rank. Its presence means that the rank is done."""

    rank: int
    files: tuple[ManifestFile, ...]
    pieces: tuple[PieceEntry, ...]
    opaque: tuple[OpaqueEntry, ...] = ()
    random: Mapping[str, Any] = field(default_factory=dict)
    """States of the random generators, for a resume with the same number of ranks."""
    error: str = ""
    """Why this rank could not write; such a checkpoint is never committed."""

    def to_json(self) -> bytes:
        return json.dumps({"format": FORMAT, **asdict(self)}).encode() + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> RankIndex:
        """Parses an index. Raises StorageError if it is not one of this format."""
        try:
            values = json.loads(data)
            if values.pop("format") != FORMAT:
                raise ValueError(f"format is not {FORMAT}")
            values["files"] = tuple(ManifestFile(**file) for file in values["files"])
            values["pieces"] = tuple(_piece(piece) for piece in values["pieces"])
            values["opaque"] = tuple(OpaqueEntry(**entry) for entry in values["opaque"])
            return cls(**values)
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(f"an index of a checkpoint is damaged: {error!r}", "the checkpoint before it is used") from error


def _piece(values: dict[str, Any]) -> PieceEntry:
    box = tuple((first, length) for first, length in values["box"])
    return PieceEntry(**{**values, "shape": tuple(values["shape"]), "box": box, "kinds": tuple(values["kinds"])})


def inside(checkpoint: str, file: str) -> str:
    """Path of a file of a checkpoint, relative to the task's output."""
    return join(checkpoint, file)
