"""Durations (`2d`, `90m`) and sizes (`3Ti`, `500M`): text in YAML, plain numbers in Python."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_LONGEST_S = 1e9  # about 31 years; KubeRay and Kubernetes keep seconds in 32 bits
_MOST_BYTES = 1024**6
_BYTES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15} | {
    f"{prefix}i": 1024**power for power, prefix in enumerate("KMGTP", start=1)
}
DURATION_PATTERN = r"^([0-9]{1,10}(\.[0-9]{1,9})?[smhdw]){1,5}$"
SIZE_PATTERN = r"^[0-9]{1,18}(\.[0-9]{1,9})?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"


def parse_duration_s(value: Any) -> Any:
    """`"1h30m"` -> 5400.0 seconds. Numbers are seconds. Raises ValueError on anything else."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= _LONGEST_S:
        return float(value)
    if not isinstance(value, str) or not re.fullmatch(DURATION_PATTERN, value):
        raise ValueError(f"{value!r} is not a duration: write it like 90s, 15m, 2h, 2d or 1h30m")
    seconds = sum(float(number) * _SECONDS[unit] for number, _, unit in re.findall(r"([0-9]+(\.[0-9]+)?)([smhdw])", value))
    if seconds > _LONGEST_S:
        raise ValueError(f"{value!r} is more than 30 years: write a shorter duration")
    return seconds


def parse_size_bytes(value: Any) -> Any:
    """`"3Ti"` -> 3298534883328 bytes, by Kubernetes' suffixes. Raises ValueError on anything else."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_BYTES:
        return value
    match = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)([A-Za-z]*)", value) if isinstance(value, str) else None
    if match is None or match[2] not in _BYTES:
        raise ValueError(f"{value!r} is not a size: write it like 500M, 40Gi or 3Ti")
    found = int(float(match[1]) * _BYTES[match[2]])
    if found > _MOST_BYTES:
        raise ValueError(f"{value!r} is more than 1024Pi: write a smaller size")
    return found


UNITS = {DURATION_PATTERN: "seconds, or a duration such as 90s, 15m, 2h, 2d", SIZE_PATTERN: "bytes, or a size such as 500M, 40Gi, 3Ti"}
"""Format of each quantity, by the pattern of its text. Schemas and pages append it to the description of a field."""


def size_text(size_bytes: int) -> str:
    """`8589934592` -> `8Gi`; plain bytes where no binary unit divides them."""
    for power, prefix in reversed(list(enumerate("KMGTP", start=1))):
        if size_bytes and size_bytes % 1024**power == 0:
            return f"{size_bytes // 1024**power}{prefix}i"
    return str(size_bytes)


def bytes_text(size_bytes: float) -> str:
    """Bytes for people: `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} B" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} TiB"


# `minimum` binds only numbers and `pattern` only text, so both may be present.
_INT_OR_STRING = {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}], "minimum": 0}
Duration = Annotated[
    float,
    BeforeValidator(parse_duration_s),
    WithJsonSchema({**_INT_OR_STRING, "maximum": int(_LONGEST_S), "pattern": DURATION_PATTERN, "description": UNITS[DURATION_PATTERN]}),
]
Size = Annotated[
    int,
    BeforeValidator(parse_size_bytes),
    WithJsonSchema({**_INT_OR_STRING, "maximum": _MOST_BYTES, "pattern": SIZE_PATTERN, "description": UNITS[SIZE_PATTERN]}),
]
