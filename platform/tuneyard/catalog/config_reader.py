"""Reads a Hugging Face `config.json`: older and newer names of a field, and errors with the name of the missing one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput
from tuneyard.api.pointers import refuse_pointers


class ConfigReader:
    """Fields of one configuration by any of their names. `null` counts as absent, as in transformers."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        nested = values.get("text_config")
        # Vision-language models have their language model's dimensions one level down, but its head's tie at the top.
        self.values = {**values, **nested} if isinstance(nested, Mapping) else dict(values)
        self.nested = isinstance(nested, Mapping)
        self.model_type = str(self.values.get("model_type") or "")

    def has(self, *names: str) -> bool:
        return all(self.values.get(name) is not None for name in names)

    def is_null(self, name: str) -> bool:
        """Whether the field is present and `null`: for the few fields whose default differs from the meaning of `null`."""
        return name in self.values and self.values[name] is None

    def value(self, *names: str, default: Any) -> Any:
        """The first of `names` that is present, else `default`."""
        return next((self.values[name] for name in names if self.values.get(name) is not None), default)

    def number(self, *names: str, default: int | None = None) -> int:
        """A positive whole number, or 0 if that is the default. Raises BadInput if it is absent without a default, or is no such number."""
        found = self.value(*names, default=default)
        if found is None:
            raise BadInput(
                f"the model's config.json has no {names[0]} (model_type: {self.model_type or 'absent'})",
                "check that it is the config of a decoder-only language model",
            )
        if isinstance(found, bool) or not isinstance(found, int) or found < (0 if default == 0 else 1):
            raise BadInput(f"{names[0]} in the model's config.json is {found!r}, not a positive whole number", "correct config.json")
        return found

    def flag(self, name: str, *, default: bool = False) -> bool:
        return bool(self.value(name, default=default))

    def dropout(self, *names: str, default: float = 0.0) -> float:
        return float(self.value(*names, default=default))


def config_in(folder: Path | str) -> dict[str, Any]:
    """`config.json` in a model's folder. Raises BadInput if it cannot be read, and where a file of the folder was never fetched."""
    refuse_pointers(folder)
    file = Path(folder) / "config.json"
    next_step = "name a Hugging Face model, or a folder saved by `save_pretrained`"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"{folder} is not a model folder: config.json cannot be read ({error})", next_step) from error
    if not isinstance(config, dict):
        raise BadInput(f"{file} does not hold a JSON object", next_step)
    return config
