"""The outcome of a submission under the name of a stored JobSpec. Pure: the hub's answers come in as values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tuneyard.api import BadInput, Phase
from tuneyard.api.templates import comparable
from tuneyard.cluster.hub_job import HubJob

Outcome = Literal["created", "updated", "unchanged"]
_SHOWN = 5


@dataclass(frozen=True)
class Submission:
    """The outcome of submitting a file. A dry run changes nothing: its `outcome` is a prediction."""

    job: HubJob
    outcome: Outcome
    dry_run: bool = False


def resubmit(stored: HubJob, wanted: Mapping[str, Any]) -> Outcome:
    """Whether the stored job stays as it is, or takes the wanted spec. A default that only one of them spells out is no difference.

    Raises BadInput, with the next step, where neither is what the author means.
    """
    again = f"kubectl delete jobspec {stored.name} -n {stored.namespace}"
    if stored.deleting:
        raise BadInput(
            f"JobSpec {stored.label} is being deleted",
            f"submit again when it is gone: kubectl wait --for=delete jobspec/{stored.name} -n {stored.namespace}",
        )
    changed = list(differences(*_alike(stored.spec, wanted)))
    if stored.phase is Phase.SUCCEEDED and not changed:
        return "unchanged"
    never_began = stored.phase is Phase.FAILED and not stored.status.attempts  # the hub starts it when its spec is corrected
    if stored.ended and not (never_began and changed):
        why = f": {stored.status.message}" if stored.status.message else ""
        differs = f", and the file differs from it: {_listed(changed)}" if changed else ""
        raise BadInput(
            f"JobSpec {stored.label} has ended already ({stored.phase}{why}){differs}",
            f"submit it under another name, or remove that one first (what it stored stays): {again}",
        )
    if stored.cancelled:
        raise BadInput(f"JobSpec {stored.label} is being cancelled", f"when it has ended, remove it and submit again: {again}")
    if not changed:
        return "unchanged"
    if not stored.status.attempts:
        return "updated"
    if all(each.startswith("spec.suspend:") for each in changed) and stored.spec.get("suspend"):
        raise BadInput(
            f"JobSpec {stored.label} is suspended, and the file is not",
            f"let it go on: tuneyard resume {stored.name} -n {stored.namespace}",
        )
    raise BadInput(
        f"JobSpec {stored.label} is {stored.phase} already, and the file differs from it: {_listed(changed)}",
        "submit it under another name, or end the running one first: "
        f"tuneyard cancel {stored.name} -n {stored.namespace} --wait && {again}",
    )


def _alike(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Both specs with all defaults, or both as written if one of them cannot be read."""
    one, other = comparable(stored), comparable(wanted)
    return (one, other) if one is not None and other is not None else (stored, wanted)


def differences(stored: Any, wanted: Any, path: str = "spec") -> Iterator[str]:
    """`spec.tasks[0].train.steps: 10 -> 20`, for each value that differs. `cancelled` is not compared."""
    if isinstance(stored, Mapping) and isinstance(wanted, Mapping):
        for key in dict.fromkeys([*stored, *wanted]):
            if path != "spec" or key != "cancelled":
                yield from differences(stored.get(key), wanted.get(key), f"{path}.{key}")
    elif isinstance(stored, list) and isinstance(wanted, list) and len(stored) == len(wanted):
        for index, (one, other) in enumerate(zip(stored, wanted, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif stored != wanted:
        yield f"{path}: {_value(stored)} -> {_value(wanted)}"


def _listed(changed: list[str]) -> str:
    more = f"; and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
    return "; ".join(changed[:_SHOWN]) + more


def _value(value: Any) -> str:
    if value is None:
        return "nothing"
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:8]}…{text[-51:]}"  # shipped files differ in the middle of their URIs
