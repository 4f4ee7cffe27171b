"""Reads any run of elements of any parameter from the pieces of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from tuneyard.api import BadInput
from tuneyard.training.checkpoint.layout import Box, PieceEntry, RankIndex, tensor_key


class Reader:
    """Pieces of a checkpoint whose files are in `folder`. Files are mapped into memory, and read on demand."""

    def __init__(self, folder: Path, indices: Iterable[RankIndex]) -> None:
        self.folder = folder
        self._files: dict[str, Any] = {}
        self._opaque: dict[str, str] = {}
        self._recent: tuple[tuple[str, str, Box], torch.Tensor] | None = None
        self._pieces: dict[str, dict[Box, list[tuple[PieceEntry, str]]]] = {}
        """Pieces of each parameter, with their files, by box."""
        for index in indices:
            for entry in index.pieces:
                self._pieces.setdefault(entry.name, {}).setdefault(entry.box, []).append((entry, index.files[entry.file].path))
            for opaque in index.opaque:
                self._opaque[opaque.key] = index.files[opaque.file].path

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shapes of the whole parameters, by name."""
        return {name: self._shape(name) for name in self._pieces}

    def _shape(self, name: str) -> tuple[int, ...]:
        return next(iter(self._pieces_of(name).values()))[0][0].shape

    def kinds_of(self, name: str) -> tuple[str, ...]:
        """Kinds of a parameter's tensors: `weight`, and optimizer states. Empty if the checkpoint lacks the parameter."""
        return next((pieces[0][0].kinds for pieces in self._pieces.get(name, {}).values()), ())

    @property
    def opaque_keys(self) -> frozenset[str]:
        return frozenset(self._opaque)

    def opaque(self, key: str) -> torch.Tensor:
        return self._tensor(self._opaque[key], key)

    def opaque_under(self, prefix: str) -> dict[str, torch.Tensor]:
        """Opaque tensors of one parameter or group, by kind."""
        return {key.removeprefix(f"{prefix}|"): self.opaque(key) for key in self._opaque if key.startswith(f"{prefix}|")}

    def whole(self, name: str, kind: str) -> torch.Tensor:
        """A whole parameter, or one of its states, in its own shape."""
        shape = self._shape(name)
        box = tuple((0, length) for length in shape)
        return self.read(name, kind, box, 0, _count(box)).reshape(shape)

    def read(self, name: str, kind: str, box: Box, start: int, stop: int) -> torch.Tensor:
        """Elements `start` to `stop` of the flattened `box` of a parameter. Raises BadInput if the checkpoint does not have them."""
        pieces = self._pieces_of(name)
        if box in pieces:  # boxes do not overlap, so no other box has elements of it
            return self._run(pieces[box], name, kind, start, stop)
        # The cut over tensor-parallel ranks differs: assemble the box from parts, one parameter at a time.
        target: torch.Tensor | None = None
        found = 0
        for stored, part in pieces.items():
            overlap = _overlap(box, stored)
            if overlap is None:
                continue
            content = self._box(part, name, kind, stored)
            if target is None:
                target = torch.empty([length for _, length in box], dtype=content.dtype)
            target[_slices(overlap, box)] = content[_slices(overlap, stored)]
            found += _count(overlap)
        if target is None or found != _count(box):
            raise _incomplete(name, kind)
        return target.reshape(-1)[start:stop]

    def _box(self, pieces: list[tuple[PieceEntry, str]], name: str, kind: str, box: Box) -> torch.Tensor:
        """All of a box. The last one is cached: a rank's part of the experts of a layer is many boxes of one whole."""
        if self._recent is None or self._recent[0] != (name, kind, box):
            self._recent = (name, kind, box), self._run(pieces, name, kind, 0, _count(box)).reshape([length for _, length in box])
        return self._recent[1]

    def _run(self, pieces: list[tuple[PieceEntry, str]], name: str, kind: str, start: int, stop: int) -> torch.Tensor:
        result: torch.Tensor | None = None
        found = 0
        for entry, file in pieces:
            first, last = max(start, entry.start), min(stop, entry.stop)
            if first >= last or kind not in entry.kinds:
                continue
            part = self._slice(file, tensor_key(name, kind, entry.box, entry.start), first - entry.start, last - entry.start)
            if first == start and last == stop:
                return part
            if result is None:
                result = torch.empty(stop - start, dtype=part.dtype)
            result[first - start : last - start] = part
            found += last - first
        if result is None or found != stop - start:
            raise _incomplete(name, kind)
        return result

    def _pieces_of(self, name: str) -> dict[Box, list[tuple[PieceEntry, str]]]:
        if name not in self._pieces:
            raise BadInput(
                f"the checkpoint has no parameter {name}: it is of another model or method",
                "resume with the model and method it was made with, or start again with another output folder",
            )
        return self._pieces[name]

    def _slice(self, file: str, key: str, first: int, last: int) -> torch.Tensor:
        part: torch.Tensor = self._open(file).get_slice(key)[first:last]
        return part

    def _tensor(self, file: str, key: str) -> torch.Tensor:
        tensor: torch.Tensor = self._open(file).get_tensor(key)
        return tensor

    def _open(self, file: str) -> Any:
        if file not in self._files:
            self._files[file] = safe_open(self.folder / file, framework="pt")
        return self._files[file]


def _count(box: Box) -> int:
    count = 1
    for _, length in box:
        count *= length
    return count


def _overlap(one: Box, other: Box) -> Box | None:
    cut = [(max(a, b), min(a + n, b + m)) for (a, n), (b, m) in zip(one, other, strict=True)]
    return tuple((first, end - first) for first, end in cut) if all(first < end for first, end in cut) else None


def _slices(overlap: Box, frame: Box) -> tuple[slice, ...]:
    return tuple(slice(first - begin, first - begin + length) for (first, length), (begin, _) in zip(overlap, frame, strict=True))


def _incomplete(name: str, kind: str) -> BadInput:
    return BadInput(
        f"the checkpoint has no complete {kind} of {name}",
        "resume with the layout and optimizer it was made with, or start again with another output folder",
    )
