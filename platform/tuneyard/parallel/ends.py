"""Linears whose results reach the model's outputs unchanged, or changed value by value, such as logits. An engine may keep these in
shards.
"""

from __future__ import annotations

from collections import defaultdict

import torch

from tuneyard.parallel.modules import pattern
from tuneyard.parallel.recording import Event, Recording

_COPIES = {"_to_copy", "clone", "detach", "alias", "lift_fresh"}


def ends_of(recording: Recording) -> frozenset[str]:
    """Patterns of linears whose results, in every call, lead only through value-by-value operations to the model's outputs."""
    users: dict[int, list[Event]] = defaultdict(list)
    for event in recording.events:
        for ref in event.read:
            users[ref.number].append(event)
    verdicts: dict[str, bool] = {}
    for event in recording.events:
        if event.kind == "linear":
            (made,) = event.made
            name = pattern(event.module)
            verdicts[name] = verdicts.get(name, True) and _ends(recording, users, made.number)
    return frozenset(name for name, ends in verdicts.items() if ends)


def _ends(recording: Recording, users: dict[int, list[Event]], start: int) -> bool:
    waiting, seen = [start], {start}
    while waiting:
        number = waiting.pop()
        for event in users[number]:
            if not _by_value(recording, event, seen):
                return False
            fresh = {ref.number for ref in event.made} - seen
            seen |= fresh
            waiting += sorted(fresh)
    return bool(seen & set(recording.outputs))


def _by_value(recording: Recording, event: Event, ours: set[int]) -> bool:
    """Whether an operation keeps the last dimension separate: other tensors that it reads must not vary along it."""
    if event.kind != "op" or event.function._schema.is_mutable:
        return False
    if event.function.overloadpacket.__name__ not in _COPIES and torch.Tag.pointwise not in event.function.tags:
        return False
    shapes = [recording.shapes[ref.number] for ref in event.read if ref.number not in ours]
    return all(not shape or shape[-1] == 1 for shape in shapes)
