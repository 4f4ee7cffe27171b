"""The parts of a mixture as separate data sets, and their names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from tuneyard.api import BadInput, MixPart, TrainData
from tuneyard.data.way import VALIDATION


def part_data(spec: TrainData, part: MixPart) -> TrainData:
    """A part as a separate data set. Settings that the part omits come from the mixture."""
    own = {
        name: getattr(part, name)
        for name in ("source", "from_task", "path", "split", "file_type", "columns", "roles", "template", "sheet", "limit")
    }
    given = {name: getattr(part, name) for name in ("format", "loss_on", "chat", "chat_template") if getattr(part, name) is not None}
    return spec.model_copy(update={"mix": [], "validation": None, **own, **given})


def validation_data(spec: TrainData) -> TrainData:
    """`data.validation` as a separate data set with the settings of the training data."""
    assert spec.validation is not None
    own = {name: getattr(spec.validation, name) for name in type(spec.validation).model_fields}
    own["template"] = spec.validation.template or spec.template  # prompts of another form would measure something else
    return spec.model_copy(update={"mix": [], "validation": None, "validation_fraction": 0.0, **own})


def data_sets(spec: TrainData) -> dict[str, TrainData]:
    """Each data set of a task by its name in `Ways`."""
    named = {name: part_data(spec, part) for name, part in zip(part_names(spec.mix), spec.mix, strict=True)}
    trained = named or {"": spec.model_copy(update={"validation": None})}
    return trained | ({VALIDATION: validation_data(spec)} if spec.validation is not None else {})


def part_names(parts: Sequence[MixPart]) -> list[str]:
    """The name of each part in reports: its own name, else the last path component of its source, numbered where two are equal."""
    names: list[str] = []
    for part in parts:
        name = part.name or PurePosixPath((part.source or part.from_task or "").rstrip("/")).name or "part"
        taken = sum(other == name or other.startswith(f"{name} (") for other in names)
        names.append(f"{name} ({taken + 1})" if taken else name)
    return names


def of_part(name: str, error: BadInput) -> BadInput:
    """The error with the name of its part; its next step also offers to remove the part."""
    comma = "" if error.next_step.endswith("?") else ","
    step = f"{error.next_step}{comma} or take {name} out of data.mix" if error.next_step else f"take {name} out of data.mix"
    return BadInput(f"part {name} of the mixture: {error.cause}", step)
