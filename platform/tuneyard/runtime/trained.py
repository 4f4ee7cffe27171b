"""Finds the model that a train task of a finished job has made, by the job's output folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuneyard.api import BadInput
from tuneyard.storage import NotFound, Store, join, open_store

_MODEL, _MERGED = "model", "merged"


@dataclass(frozen=True)
class Trained:
    """URIs of the weights, and of the adapter for them, if any."""

    task: str
    model_uri: str
    adapter_uri: str | None


def find_trained(out: str, task: str | None = None) -> Trained:
    """The model of the last train task that has succeeded, or of `task`. `out`: the job's output, a folder or a URI.

    Weights and adapter are searched in `out`, so that a copied folder works. Raises BadInput if there is no model.
    """
    store = open_store(out)
    kinds = _kinds(store, out)
    trains = [name for name, kind in kinds.items() if kind == "train"]
    if task is not None and task not in trains:
        known = f"it has {', '.join(trains)}" if trains else "it has none"
        raise BadInput(f"{out} has no train task {task}: {known}", "give --task one of these, or leave it out")
    for name in reversed([task] if task else trains):
        if store.exists(f"{name}/result.json"):
            return _trained(out, name, json.loads(store.get(f"{name}/result.json")))
    which = f"task {task}" if task else "a train task"
    raise BadInput(f"{out}: {which} has not ended yet, or failed" if trains else f"{out}: no train task ran here", _advice(out, trains))


def _trained(out: str, task: str, result: Mapping[str, Any]) -> Trained:
    own = join(out, task)
    if result.get("merged_uri"):
        return Trained(task, join(own, _MERGED), None)
    if result.get("adapter_uri"):
        return Trained(task, str(result["base_model_uri"]), join(own, _MODEL))
    return Trained(task, join(own, _MODEL), None)


def _kinds(store: Store, out: str) -> dict[str, str]:
    """Task -> kind, in the order of the report."""
    try:
        report = json.loads(store.get("report.json"))
        return {name: str(task.get("kind")) for name, task in report["tasks"].items()}
    except NotFound:
        raise BadInput(f"{out} holds no report.json", "give the folder that `tuneyard run` wrote: the last line of its output") from None
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise BadInput(f"{out}/report.json is damaged: {error}", "run the job again with --resume: finished tasks are kept") from error


def _advice(out: str, trains: list[str]) -> str:
    return f"tuneyard report {out} says how far it is" if trains else "give the output of a job with a train task"
