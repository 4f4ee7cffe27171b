"""The one reader of objects that anybody may have written: each in its own guard, within a budget that is checked before it is decoded.

The budget is one of depth and of memory (`over_budget`). The check reads bytes without recursion, so no object raises a RecursionError,
and none spoils the list or the watch that it stands in. An object over the budget is reduced, never left out:

- a part (`metadata`, `spec`, `status`) within the budget is kept whole, any other keeps its plain fields, such as `spec.cancelled`;
- metadata over the budget keep each field within it, finalizers and owners whole, and of labels and annotations the platform's own first;
- `unreadable` says which parts are reduced, and why. Left out without a word are the field lists of `managedFields` alone, which nothing
  reads: a sound object may have such lists of twice the levels of its spec.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any, TypeVar

from tuneyard.kubernetes.events import event_of
from tuneyard.kubernetes.objects import Object

Decode = Callable[[bytes], Any]
T = TypeVar("T")
DEEPEST = 64
"""Levels of an object. The deepest that Kubernetes itself writes, the fields of `managedFields`, have about twice those of a spec."""
LARGEST_BYTES = 4 * 2**20
"""Memory of an object, or of one of its parts, by the estimate of `over_budget`."""
_VALUE_BYTES = 64
"""Memory of a number, a text or an empty list in Python, beside its own bytes."""
_MOST_PLAIN, _LONGEST_PLAIN, _LONGEST_TEXT = 100, 4096, 253
_UNREADABLE = "tuneyard.dev/unreadable"
NO_ROOM = "memory"
_OURS = "tuneyard.dev/"
_DECIDE = ("finalizers", "ownerReferences")
"""Who may remove an object, and with what it goes. They take at most ten times their bytes, and an API server takes 1.5 MB of an object."""
_MEMBER = re.compile(rb'\s*("[^"\\]*+(?:\\.[^"\\]*+)*+")\s*:\s*', re.DOTALL)
_OPENING = b"[{"
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def unreadable(item: Mapping[str, Any]) -> Mapping[str, str]:
    """The parts of an object that were reduced, each with the reason; empty for an object that was read whole."""
    found: Mapping[str, str] = item.get(_UNREADABLE) or {}
    return found


def without_room(item: Mapping[str, Any], why: str) -> Object:
    """A decoded object, reduced for want of memory: its spec keeps its plain fields alone. Its labels and annotations keep a hundred
    short texts each, the platform's own first.

    `unreadable` has the reason as that of `NO_ROOM`.
    """
    spec, metadata = item.get("spec"), {**item["metadata"]}
    for name in ("labels", "annotations"):  # kubectl keeps the whole object in an annotation
        if name in metadata:
            metadata[name] = _plain(metadata[name] or {}, longest=_LONGEST_TEXT)
    if "managedFields" in metadata:
        metadata["managedFields"] = [{"operation": each.get("operation")} for each in (metadata["managedFields"] or ())[:_MOST_PLAIN]]
    plain = _plain(spec) if isinstance(spec, Mapping) else {}
    return {**item, "metadata": metadata, "spec": plain, _UNREADABLE: {**unreadable(item), NO_ROOM: why}}


def read_object(data: bytes, decode: Decode = json.loads) -> Object:
    """One object from the answer of an API server, whole or reduced. Raises ValueError for what is no JSON object."""
    if not over_budget(data):
        whole = decode(data)
        if not isinstance(whole, dict):
            raise ValueError(f"no object: {data[:100]!r}")
        return whole
    found: Object = {"metadata": {}}
    problems = {}
    for name, value in _members(data).items():
        why = over_budget(value)
        if not why:
            found[name] = decode(value)
        elif name == "metadata":
            found[name], why = _metadata(value, decode)
        else:
            found[name] = _plain_members(value, decode)
        if why:
            problems[name] = why
    return {**found, _UNREADABLE: problems} if problems else found


def _metadata(data: bytes, decode: Decode) -> tuple[Object, str]:
    """The fields of metadata over the budget, and which of them are reduced, with the reasons."""
    found: Object = {}
    problems = []
    for name, value in _members(data).items():
        why = over_budget(value)
        if not why or (name in _DECIDE and not _is_deeper(_outside(value), DEEPEST)):
            found[name] = decode(value)
        elif name == "managedFields" and value.startswith(b"["):
            found[name] = [_plain_members(each, decode) for each in _parts(value)[:_MOST_PLAIN]]
        else:
            found[name] = _plain_members(value, decode)
            problems.append(f"{name}: {why}")
    return found, "; ".join(problems)


def read_list(data: bytes, decode: Decode = json.loads) -> Object:
    """A list, or a page of one: `items`, each whole or reduced, and `metadata`. Raises ValueError for what is no list."""
    if not over_budget(data, deepest=DEEPEST + 2):
        found = decode(data)
    else:
        parts = _members(data)
        items = parts.pop("items", b"null").strip()
        found = {name: decode(value) for name, value in parts.items() if not over_budget(value)}
        found["items"] = [read_object(item, decode) for item in _parts(items)] if items != b"null" else []
    if not isinstance(found, dict):
        raise ValueError(f"no list of objects: {data[:100]!r}")
    return {**found, "items": found.get("items") or [], "metadata": found.get("metadata") or {}}


def read_event(line: bytes, decode: Decode = json.loads) -> tuple[str, Object]:
    """Type and object of one line of a watch, as `event_of`; the object whole or reduced."""
    if not over_budget(line, deepest=DEEPEST + 1):
        return event_of(decode(line))
    parts = _members(line)
    return event_of({"type": decode(parts.get("type", b"null")), "object": read_object(parts.get("object", b"null"), decode)})


def over_budget(data: bytes, *, deepest: int = DEEPEST) -> str:
    """Why JSON may not be decoded; empty if it may."""
    outside = _outside(data)
    size = _memory(data, outside)
    if size > LARGEST_BYTES:
        return f"it would take about {size / 2**20:.1f} MiB of memory, and at most {LARGEST_BYTES / 2**20:g} MiB are read"
    if _is_deeper(outside, deepest):
        return f"it is nested deeper than {deepest} levels"
    return ""


def memory_of(data: bytes) -> int:
    """Bytes of memory that JSON takes once decoded, estimated as `len(data) + 64 * values`. `[[],[],…]` of 1.2 MB takes 30 MB."""
    return _memory(data, _outside(data))


def _memory(data: bytes, outside: bytes) -> int:
    return len(data) + _VALUE_BYTES * (outside.count(b"[") + outside.count(b"{") + outside.count(b","))


def _outside(data: bytes) -> bytes:
    """JSON without its texts."""
    unescaped = data.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in data else data
    return b"".join(unescaped.split(b'"')[::2])


def _is_deeper(outside: bytes, levels: int) -> bool:
    """Whether brackets nest deeper than `levels`: each round takes away the innermost pairs."""
    left = outside.translate(_ONE_KIND, _NO_BRACKETS)
    if len(left) <= 2 * levels:
        return False
    too_many = b"[" * (levels + 1)
    for _ in range(levels):
        if not left or too_many in left:
            break
        left = left.replace(b"[]", b"")
    return bool(left)


def _parts(data: bytes) -> list[bytes]:
    """The items of a list, or the members of an object, as they stand between their commas. Raises ValueError if the brackets do not pair.

    Bytes are looked at as vectors: an attacker's 1.5 MB cost milliseconds.
    """
    import numpy as np  # the client starts without it: only objects over the budget come here

    data = data.strip()
    marks = np.frombuffer(data.replace(b"\\\\", b"  ").replace(b'\\"', b"  "), np.uint8)
    within_text = np.bitwise_xor.accumulate((marks == ord('"')).view(np.uint8))
    steps = np.zeros(256, np.int8)
    steps[list(b"[{")], steps[list(b"]}")] = 1, -1
    depth = np.cumsum(steps[marks] * (within_text == 0), dtype=np.int32)
    if not len(depth) or depth[0] != 1 or depth[-1] != 0 or not depth[:-1].all():
        raise ValueError(f"no JSON: {data[:100]!r}")
    commas = np.flatnonzero((marks == ord(",")) & (depth == 1) & (within_text == 0)).tolist()
    edges = [0, *commas, len(data) - 1]
    return [part for begin, end in pairwise(edges) if (part := data[begin + 1 : end].strip())]


def _members(data: bytes) -> dict[str, bytes]:
    found = {}
    for part in _parts(data):
        name = _MEMBER.match(part)
        if name is None:
            raise ValueError(f"no JSON object: {part[:100]!r}")
        found[str(json.loads(name[1]))] = part[name.end() :]
    return found


def _plain_members(data: bytes, decode: Decode) -> Object:
    """The plain fields of an object that is too deep or too large; empty for what is no object."""
    if not data.lstrip().startswith(b"{"):
        return {}
    short = ((name, value) for name, value in _members(data).items() if len(value) <= _LONGEST_PLAIN and value[:1] not in _OPENING)
    return {name: decode(value) for name, value in _ours_first(short)}


def _plain(part: Mapping[str, Any], *, longest: int = _LONGEST_PLAIN) -> Object:
    """The plain fields of a decoded part."""
    short = ((name, value) for name, value in part.items() if not isinstance(value, Mapping | list) and len(str(value)) <= longest)
    return dict(_ours_first(short))


def _ours_first(fields: Iterable[tuple[str, T]]) -> list[tuple[str, T]]:
    """As many fields as a reduced part keeps: the platform's own labels and annotations are not among those that it loses."""
    return sorted(fields, key=lambda field: not field[0].startswith(_OURS))[:_MOST_PLAIN]
