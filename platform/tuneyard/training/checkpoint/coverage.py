"""Completeness of a checkpoint: its pieces must cover every parameter. Every reader relies on this, and hashes cannot show it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tuneyard.training.checkpoint.layout import Box, PieceEntry


def uncovered(pieces: Iterable[PieceEntry]) -> dict[str, str]:
    """Problems of parameters, by name: every element of every kind must be present exactly once."""
    by_name: dict[str, list[PieceEntry]] = {}
    for piece in pieces:
        by_name.setdefault(piece.name, []).append(piece)
    found: dict[str, str] = {}
    for name, own in by_name.items():
        for kind in dict.fromkeys(kind for piece in own for kind in piece.kinds):
            reason = _uncovered([piece for piece in own if kind in piece.kinds])
            if reason:
                found[f"{kind} of {name}"] = reason
    return found


def _uncovered(pieces: Sequence[PieceEntry]) -> str:
    """The problem of one kind of one parameter; empty if there is none."""
    shape = pieces[0].shape
    if any(piece.shape != shape for piece in pieces):
        return "has pieces of different shapes"
    boxes = {piece.box for piece in pieces}
    if not all(_is_inside(box, shape) for box in boxes) or _any_overlap(boxes):
        return "has boxes that overlap or reach beyond it"
    missing = math.prod(shape) - sum(_elements(box) for box in boxes)
    for box in boxes:
        place = 0
        for start, stop in sorted((piece.start, piece.stop) for piece in pieces if piece.box == box):
            if start < place or stop < start or stop > _elements(box):
                return "has pieces that overlap or reach beyond it"
            missing += start - place
            place = stop
        missing += _elements(box) - place
    return f"misses {missing} of {math.prod(shape)} elements" if missing else ""


def _elements(box: Box) -> int:
    return math.prod(length for _, length in box)


def _is_inside(box: Box, shape: tuple[int, ...]) -> bool:
    return len(box) == len(shape) and all(first >= 0 and first + length <= n for (first, length), n in zip(box, shape, strict=True))


def _any_overlap(boxes: Iterable[Box]) -> bool:
    """Whether any two boxes overlap. In the order of first indices, each box is compared only with earlier boxes that reach beyond its
    start, because the experts of a layer are many boxes.
    """
    reaching: list[Box] = []
    for box in sorted(boxes):
        reaching = [other for other in reaching if sum(other[0]) > box[0][0]] if box else reaching
        if any(_overlap(other, box) for other in reaching):
            return True
        reaching.append(box)
    return False


def _overlap(one: Box, other: Box) -> bool:
    return all(max(a, b) < min(a + n, b + m) for (a, n), (b, m) in zip(one, other, strict=True))
