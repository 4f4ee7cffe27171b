"""What an adapter was trained on: stored in the manifest of its folder, for a merge later. Loads no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tuneyard.api import TrainTask
from tuneyard.api.train import QuantizedAdapter
from tuneyard.storage import Store, join

ORIGIN = "base"
"""The entry of the manifest."""
_CONFIG, _MODEL = "adapter_config.json", "model"


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


def origin_of(store: Store, folder: str = "") -> Origin:
    """What the folder of an adapter says of its base. `folder`: below `store`.

    An adapter of another tool, or of an earlier version of Tuneyard, says only its name: the records of a run say the rest.
    """
    if store.is_complete(folder) and (about := store.manifest(folder).extra.get(ORIGIN)):
        return Origin.from_dict(about)
    config = json.loads(store.get(join(folder, _CONFIG)))
    base, revision = config.get("base_model_name_or_path") or "", config.get("revision")
    run = folder.removesuffix(_MODEL).rstrip("/")
    result, task = (json.loads(store.get(path)) if store.exists(path := join(run, name)) else {} for name in ("result.json", "task.json"))
    precision = (result.get("plan") or {}).get("precision")
    train = task.get("task", {}).get("train")
    return Origin(base, revision, precision) if train is None else Origin.of(TrainTask.model_validate(train), base, precision)
