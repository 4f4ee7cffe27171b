"""The parts of a mixture as data sets of their own, and what they are called."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from tuneyard.api import BadInput, MixPart, TrainData


def part_data(spec: TrainData, part: MixPart) -> TrainData:
    """A part as a data set of its own, with what it leaves out taken from the mixture."""
    own = {name: getattr(part, name) for name in ("source", "from_task", "path", "split", "file_type", "columns", "limit")}
    given = {name: getattr(part, name) for name in ("format", "loss_on", "chat", "chat_template") if getattr(part, name) is not None}
    return spec.model_copy(update={"mix": [], "validation": None, **own, **given})


def part_names(parts: Sequence[MixPart]) -> list[str]:
    """What reports call each part: its name, else the last word of its source, with a number where two are the same."""
    names: list[str] = []
    for part in parts:
        name = part.name or PurePosixPath((part.source or part.from_task or "").rstrip("/")).name or "part"
        taken = sum(other == name or other.startswith(f"{name} (") for other in names)
        names.append(f"{name} ({taken + 1})" if taken else name)
    return names


def of_part(name: str, error: BadInput) -> BadInput:
    """The error with the part that it is about, and the way on without it."""
    comma = "" if error.next_step.endswith("?") else ","
    step = f"{error.next_step}{comma} or take {name} out of data.mix" if error.next_step else f"take {name} out of data.mix"
    return BadInput(f"part {name} of the mixture: {error.cause}", step)
