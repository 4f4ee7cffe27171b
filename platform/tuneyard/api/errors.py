"""Errors that Tuneyard shows people. Each has a cause, a next step and an exit code.

Any other exception is a bug in Tuneyard; `cli` prints it as one and asks for a report.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FailureKind(StrEnum):
    """Cause of an attempt's failure. `retries` in the JobSpec decides what follows each kind."""

    USER_ERROR = "UserError"
    OUT_OF_MEMORY = "OutOfMemory"
    NETWORK = "Network"
    NODE_LOST = "NodeLost"
    IMAGE = "Image"
    STORAGE = "Storage"
    PREEMPTED = "Preempted"
    DEADLINE = "Deadline"
    CANCELLED = "Cancelled"
    INTERNAL = "Internal"


@dataclass(frozen=True, kw_only=True)
class Blame:
    """Place of an attempt's first failure, as far as it is known: the next attempt can avoid the node, and a person can read the last
    lines.
    """

    rank: int | None = None
    node: str = ""
    """Kubernetes' name of the node to blame; empty if no node is to blame."""
    log_tail: str = ""


class TuneyardError(Exception):
    """An error for people: the cause, the next step, and the place of the failure (`blame`)."""

    exit_code = 1
    default_kind = FailureKind.INTERNAL

    def __init__(self, cause: str, next_step: str = "", *, kind: FailureKind | None = None, blame: Blame | None = None) -> None:
        self.cause = cause
        self.next_step = next_step
        self.kind = kind or self.default_kind
        self.blame = blame or Blame()
        super().__init__(f"{cause}\n  next: {next_step}" if next_step else cause)

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions cross process borders by pickle, which by default replays only `args`.
        return _rebuild, (type(self), self.cause, self.next_step, self.kind, self.blame)


def said_by(error: BaseException, *, at_most: int = 300) -> str:
    """What an error of a library says, in one line: its first line, with all that this announces by a colon; else its type."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines if lines and lines[0].endswith(":") else lines[:1]) or type(error).__name__
    return text if len(text) <= at_most else f"{text[: at_most - 2].rstrip()} …"


def _rebuild(cls: type[TuneyardError], cause: str, next_step: str, kind: FailureKind, blame: Blame) -> TuneyardError:
    return cls(cause, next_step, kind=kind, blame=blame)


class BadInput(TuneyardError):
    """The input cannot work as written: exit code 2; nothing was started."""

    exit_code = 2
    default_kind = FailureKind.USER_ERROR


class JobFailed(TuneyardError):
    """The job was started and did not succeed: exit code 1."""

    exit_code = 1
    default_kind = FailureKind.USER_ERROR


class StorageError(JobFailed):
    """Output storage refused or lost a write. Partial writes do not count as committed."""

    default_kind = FailureKind.STORAGE
