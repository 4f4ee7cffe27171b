"""Refusals: the reasons why a job is not admitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuneyard.api import BadInput
from tuneyard.api.loading_yaml import Path


@dataclass(frozen=True)
class Refusal:
    """One obstacle. `path` starts at the top of the JobSpec."""

    path: Path
    reason: str
    next_step: str = ""

    @property
    def words(self) -> str:
        """The reason, with the next step where it has one."""
        return f"{self.reason}; {self.next_step}" if self.next_step else self.reason

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.path))}: {self.reason}"


def refused(refusals: Sequence[Refusal]) -> BadInput:
    """The error for refusals of one machine: the first refusal, with all others that have the same next step."""
    first = refusals[0]
    return BadInput("\n".join(each.reason for each in refusals if each.next_step == first.next_step), first.next_step)
