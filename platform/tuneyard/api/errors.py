"""The errors that Tuneyard shows people: each names a cause and the next step, and carries its exit code.

Anything else that escapes is a bug in Tuneyard; `cli` prints it as one and asks for a report.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FailureKind(StrEnum):
    """Why an attempt failed; `retries` in the JobSpec says what each kind leads to."""

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
    """Where an attempt failed first, as far as that is known: the next one can go elsewhere, and a person can read its last lines."""

    rank: int | None = None
    node: str = ""
    """Kubernetes' name of the node that is to blame; empty where no node is."""
    log_tail: str = ""


class TuneyardError(Exception):
    """An error for people. `cause` says what happened, `next_step` what to do about it, `blame` where."""

    exit_code = 1
    default_kind = FailureKind.INTERNAL

    def __init__(self, cause: str, next_step: str = "", *, kind: FailureKind | None = None, blame: Blame | None = None) -> None:
        self.cause = cause
        self.next_step = next_step
        self.kind = kind or self.default_kind
        self.blame = blame or Blame()
        super().__init__(f"{cause}\n  next: {next_step}" if next_step else cause)

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions cross process borders by pickle, which by default would replay `args` alone.
        return _rebuild, (type(self), self.cause, self.next_step, self.kind, self.blame)


def _rebuild(cls: type[TuneyardError], cause: str, next_step: str, kind: FailureKind, blame: Blame) -> TuneyardError:
    return cls(cause, next_step, kind=kind, blame=blame)


class BadInput(TuneyardError):
    """The input cannot work as it is written: exit code 2, and nothing was started."""

    exit_code = 2
    default_kind = FailureKind.USER_ERROR


class JobFailed(TuneyardError):
    """The job was started and did not succeed: exit code 1."""

    exit_code = 1
    default_kind = FailureKind.USER_ERROR


class StorageError(JobFailed):
    """Output storage refused or lost a write: nothing half-written counts as committed."""

    default_kind = FailureKind.STORAGE
