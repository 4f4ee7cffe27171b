"""What submitting means where a JobSpec of that name is there already. Pure: the hub's answers come in as values."""

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
    """What became of a file. After a dry run nothing has changed, and `outcome` is what would become of it."""

    job: HubJob
    outcome: Outcome
    dry_run: bool = False


def resubmit(held: HubJob, wanted: Mapping[str, Any]) -> Outcome:
    """Whether the job that is held stays as it is, or takes the spec that is wanted. A default that only one of them spells out is no
    difference.

    Raises BadInput, with what to do, where neither would be what its owner meant.
    """
    again = f"kubectl delete jobspec {held.name} -n {held.namespace}"
    if held.deleting:
        raise BadInput(
            f"JobSpec {held.label} is being deleted",
            f"submit again when it is gone: kubectl wait --for=delete jobspec/{held.name} -n {held.namespace}",
        )
    changed = list(differences(*_alike(held.spec, wanted)))
    if held.phase is Phase.SUCCEEDED and not changed:
        return "unchanged"
    never_began = held.phase is Phase.FAILED and not held.status.attempts  # the hub starts it when its spec is corrected
    if held.ended and not (never_began and changed):
        why = f": {held.status.message}" if held.status.message else ""
        differs = f", and the file differs from it: {_listed(changed)}" if changed else ""
        raise BadInput(
            f"JobSpec {held.label} has ended already ({held.phase}{why}){differs}",
            f"submit it under another name, or remove that one first (what it stored stays): {again}",
        )
    if held.cancelled:
        raise BadInput(f"JobSpec {held.label} is being cancelled", f"when it has ended, remove it and submit again: {again}")
    if not changed:
        return "unchanged"
    if not held.status.attempts:
        return "updated"
    raise BadInput(
        f"JobSpec {held.label} is {held.phase} already, and the file differs from it: {_listed(changed)}",
        f"submit it under another name, or end the running one first: tuneyard cancel {held.name} -n {held.namespace} --wait && {again}",
    )


def _alike(held: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Both with all defaults, where both can be read; as they are else."""
    one, other = comparable(held), comparable(wanted)
    return (one, other) if one is not None and other is not None else (held, wanted)


def differences(held: Any, wanted: Any, path: str = "spec") -> Iterator[str]:
    """`spec.tasks[0].train.steps: 10 -> 20`, for each value that differs. The wish to end a job is no part of what it is."""
    if isinstance(held, Mapping) and isinstance(wanted, Mapping):
        for key in dict.fromkeys([*held, *wanted]):
            if path != "spec" or key != "cancelled":
                yield from differences(held.get(key), wanted.get(key), f"{path}.{key}")
    elif isinstance(held, list) and isinstance(wanted, list) and len(held) == len(wanted):
        for index, (one, other) in enumerate(zip(held, wanted, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif held != wanted:
        yield f"{path}: {_value(held)} -> {_value(wanted)}"


def _listed(changed: list[str]) -> str:
    more = f"; and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
    return "; ".join(changed[:_SHOWN]) + more


def _value(value: Any) -> str:
    if value is None:
        return "nothing"
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:8]}…{text[-51:]}"  # shipped files differ in the middle of their URIs
