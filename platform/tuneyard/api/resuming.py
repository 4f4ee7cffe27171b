"""What may change in a train task between the attempts of one run: one entry for each field, and the comparison of two attempts.

A test walks all fields of a train task, and fails for a field without an entry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tuneyard.api.base import Fields
from tuneyard.api.local_files import hub_name
from tuneyard.api.secrets import redact_fields
from tuneyard.api.train import TrainTask

_LONGEST = 60


class Effect(StrEnum):
    """What a resume does with a changed field."""

    REFUSED = "refused"
    """The state of the run belongs to another task."""
    BY_ROWS = "refused if it changes the training rows"
    """The hashes of the rows decide (`data.content`)."""
    NEXT_STEP = "takes effect from the next step"
    NOTHING = "no effect on training"


_R, _B, _N, _0 = Effect.REFUSED, Effect.BY_ROWS, Effect.NEXT_STEP, Effect.NOTHING

# fmt: off
EFFECTS: Mapping[str, Effect] = {
    "model.name": _R, "model.from": _R, "model.path": _R, "model.revision": _R, "model.init": _R,
    "model.attention": _N, "model.trustRemoteCode": _0,
    "program": _R, "programDir": _N,
    "data.source": _B, "data.from": _B, "data.path": _B, "data.split": _B, "data.fileType": _B, "data.columns": _B, "data.limit": _B,
    "data.roles": _B, "data.template": _B, "data.sheet": _B,
    "data.mix.*.roles": _B, "data.mix.*.template": _B, "data.mix.*.sheet": _B,
    "data.mix.*.source": _B, "data.mix.*.from": _B, "data.mix.*.path": _B, "data.mix.*.split": _B, "data.mix.*.fileType": _B,
    "data.mix.*.columns": _B, "data.mix.*.limit": _B, "data.mix.*.format": _B, "data.mix.*.lossOn": _B, "data.mix.*.chat": _B,
    "data.mix.*.chatTemplate": _B, "data.mix.*.name": _R, "data.mix.*.weight": _R, "data.mix.*.repeats": _R,
    "data.temperature": _R, "data.whenExhausted": _R,
    "data.format": _B, "data.pack": _B, "data.maxLength": _B, "data.overlong": _B, "data.lossOn": _B, "data.chat": _B,
    "data.chatTemplate": _B, "data.controlTokens": _B, "data.maxBadFraction": _B, "data.validationFraction": _B, "data.shuffle": _R,
    "data.images": _B,
    "data.validation": _N, "data.streaming": _B, "data.showSample": _0, "data.workers": _0, "data.service": _0, "data.shared": _0,
    "method": _R, "method.*.rank": _R, "method.*.alpha": _R, "method.*.targets": _R, "method.*.saveModules": _R,
    "method.*.quantization": _R, "method.*.doubleQuantization": _R, "method.*.dropout": _N, "method.*.merge": _0,
    "objective": _R, "preference.beta": _R, "preference.loss": _R, "routerLoss": _N,
    "optimizer.name": _R, "optimizer.states": _R,
    "optimizer.learningRate": _N, "optimizer.schedule": _N, "optimizer.warmup": _N, "optimizer.weightDecay": _N,
    "optimizer.betas": _N, "optimizer.epsilon": _N, "optimizer.maxGradNorm": _N,
    "batch.global": _R, "batch.micro": _N,
    "epochs": _N, "steps": _N, "seed": _R, "proof": _N,
    "strategy.zero": _N, "strategy.offload.optimizer": _N, "strategy.offload.parameters": _N, "strategy.offload.nvmePath": _N,
    "strategy.tensorParallel": _N, "strategy.shardingRules": _N,
    "strategy.sequenceParallel": _N, "strategy.contextParallel": _N, "strategy.shardWithin": _N,
    "strategy.quantisedAllReduce": _N, "strategy.recompute": _N, "strategy.precision": _N, "strategy.liger": _N, "strategy.compile": _N,
    "checkpoint.everySteps": _N, "checkpoint.keep": _N,
    "evaluation.everySteps": _N, "evaluation.earlyStop": _N, "evaluation.minImprovement": _N, "evaluation.predictions": _0,
    "evaluation.best": _N, "evaluation.metrics": _N, "evaluation.samples": _0,
}
# fmt: on
"""Field, as written in YAML, to the effect of its change. `*`: any part of a mixture, or the kind of adapter."""


@dataclass(frozen=True)
class Changed:
    """A field with another value than in the attempt before."""

    field: str
    before: Any
    now: Any

    @property
    def effect(self) -> Effect:
        return EFFECTS[entry_of(self.field)]

    def __str__(self) -> str:
        return f"{self.field} changes from {_shown(self.before)} to {_shown(self.now)}"


def settings_of(task: TrainTask) -> dict[str, Any]:
    """All fields of a task with their values, defaults included and secrets hidden, for JSON. A group that has one effect is one value."""
    found = dict(_leaves(task, ""))
    if task.model.name is not None:  # records of older versions have no hf://
        found["model.name"] = hub_name(task.model.name)
    for name in [name for name in found if name.startswith(("strategy", "method"))]:
        del found[name]
    found |= _leaves(task.layout, "strategy.")
    found["method"] = task.method.name
    if task.method.adapter is not None:
        found |= _leaves(task.method.adapter, f"method.{task.method.name}.")
        found[f"method.{task.method.name}.alpha"] = scale_of(task.method.adapter)
    settings: dict[str, Any] = redact_fields(found)
    return settings


def scale_of(adapter: Any) -> float:
    """Alpha of an adapter's settings, with its default."""
    return float(adapter.alpha if adapter.alpha is not None else 2 * adapter.rank)


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Changed]:
    """Fields of `settings_of` with another value. A field that the version of Tuneyard before or now does not know is no change."""
    groups = {name.rpartition(".")[0] for name in before}
    if before.get("method") != now.get("method"):  # the adapters' fields would repeat it
        before, now = ({name: value for name, value in each.items() if not name.startswith("method.")} for each in (before, now))
    known = [name for name in dict.fromkeys([*before, *now]) if entry_of(name) in EFFECTS]
    names = [name for name in known if name in before or not _is_new(name, groups)]
    return [Changed(name, before.get(name), now.get(name)) for name in names if before.get(name) != now.get(name)]


def is_longer(found: Sequence[Changed]) -> bool:
    """Whether a task that has ended goes on with these changes: it has more steps or epochs now, and no other change is refused."""
    lengths = [each for each in found if each.field in ("steps", "epochs")]
    longer = len(lengths) == 1 and all(each.before and each.now and each.now > each.before for each in lengths)
    return longer and all(each.effect is not Effect.REFUSED for each in found)


def entry_of(field: str) -> str:
    """The key of `EFFECTS` for a field."""
    return re.sub(r"^(method)\.\w+\.|\.\d+\.", lambda found: "method.*." if found[1] else ".*.", field)


def _is_new(name: str, groups: set[str]) -> bool:
    """Whether an attempt with these groups of fields wrote no such field. A part of a mixture that it did not have is a change."""
    group = name.rpartition(".")[0]
    return group in groups or re.search(r"\.\d+$", group) is None


def _leaves(group: Fields, path: str) -> Iterator[tuple[str, Any]]:
    for name, field in type(group).model_fields.items():
        value, where = getattr(group, name), f"{path}{field.alias or name}"
        if isinstance(value, list) and value and isinstance(value[0], Fields) and where not in EFFECTS:
            for number, item in enumerate(value):
                yield from _leaves(item, f"{where}.{number}.")
        elif isinstance(value, Fields) and where not in EFFECTS:
            yield from _leaves(value, f"{where}.")
        elif not (isinstance(value, list) and f"{where}.*.name" in EFFECTS):
            yield where, _plain(value)


def _plain(value: Any) -> Any:
    """As JSON gives it back: groups become mappings, tuples become lists."""
    return json.loads(json.dumps(value, default=lambda group: group.model_dump(mode="json", by_alias=True)))


def _shown(value: Any) -> str:
    if value is None:
        return "unset"
    text = value if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else json.dumps(value)
    return text if len(text) <= _LONGEST else f"…{text[-_LONGEST:]}"
