"""What a verification found, one line for each thing that it looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from tuneyard.api import BadInput, StorageError

State = Literal["ok", "failed", "not checked"]


@dataclass(frozen=True)
class Finding:
    """`about`: files, signature, base, data, checkpoints, weights, log, or a stretch that was trained again."""

    about: str
    state: State
    words: str


_NAMED = 3


def tried(about: str, look: Callable[[], Finding], *, out_of_reach: bool = False) -> Finding:
    """Data and base may be out of reach, which says nothing of the model. Whatever else cannot be read is damaged. `out_of_reach`: what is
    looked at may be, too.
    """
    try:
        return look()
    except StorageError as error:
        return Finding(about, "not checked" if out_of_reach or about in ("base", "data") else "failed", error.cause)
    except BadInput as error:
        return Finding(about, "failed", error.cause)
    except Exception as error:  # noqa: BLE001 - libraries fail in their own ways over files that were changed
        said = (str(error).strip().splitlines() or [""])[0][:200]
        return Finding(about, "failed", f"cannot be read: {type(error).__name__}: {said}")


def compared(named: Mapping[str, str], there: Mapping[str, str]) -> str:
    """What differs between two sets of hashes; empty if nothing does."""
    missing = [path for path in named if path not in there]
    other = [path for path in named if path in there and there[path] != named[path]]
    more = [path for path in there if path not in named]
    parts = [("missing", missing), ("changed", other), ("new", more)]
    return "; ".join(f"{what}: {', '.join(paths[:_NAMED])}{' and others' * (len(paths) > _NAMED)}" for what, paths in parts if paths)
