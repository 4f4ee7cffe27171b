"""What an adapter was trained on: stored in the manifest of its folder, for a merge later. Loads no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tuneyard.api import TrainTask
from tuneyard.api.train import QuantizedAdapter

ORIGIN = "base"
"""The entry of the manifest."""


@dataclass(frozen=True)
class Origin:
    """`base`: its URI or name; empty: unknown. `precision`: of the run. `quantized`: how QLoRA rounded the base."""

    base: str
    revision: str | None = None
    precision: str | None = None
    quantized: QuantizedAdapter | None = None
    from_scratch: bool = False
    marks: Mapping[str, str] = field(default_factory=dict)
    """Of the files of the base (`storage.marks`), where it was a folder."""

    @classmethod
    def of(cls, task: TrainTask, base: str, precision: str | None) -> Origin:
        return cls(base, task.model.revision, precision, task.method.qlora, task.model.init == "scratch")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Origin:
        quantized = values["quantized"] and QuantizedAdapter.model_validate(values["quantized"])
        marks = values.get("marks") or {}
        return cls(values["base"], values["revision"], values["precision"], quantized, values["from_scratch"], marks)

    def to_dict(self) -> dict[str, Any]:
        quantized = self.quantized and self.quantized.model_dump(mode="json", include={"quantization", "double_quantization"})
        return {**vars(self), "quantized": quantized}
