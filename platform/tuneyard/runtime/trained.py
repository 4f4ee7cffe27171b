"""Finds the model that a train task of a finished job has made, by the job's output folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuneyard.api import BadInput, TrainTask
from tuneyard.storage import NotFound, Store, join, open_store
from tuneyard.training.origin import ORIGIN, Origin

_MODEL, _MERGED, _CONFIG, _CHECKPOINTS = "model", "merged", "adapter_config.json", "checkpoints"


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


@dataclass(frozen=True)
class Adapter:
    """An adapter of a finished task."""

    uri: str
    origin: Origin


def find_adapter(run: str, task: str | None = None) -> Adapter:
    """The adapter in `run`: the output of a job or of a task, or the folder of an adapter. Raises BadInput if there is none, or several."""
    store = open_store(run)
    if store.exists(_CONFIG):
        return Adapter(run, origin_of(store, ""))
    found = {path.removesuffix(f"{_MODEL}/{_CONFIG}").rstrip("/"): path for path in _configs(store)}
    if task is not None:
        found = {name: path for name, path in found.items() if name == task}
    if not found:
        raise BadInput(*_no_adapter(store, run, task))
    if len(found) > 1:
        raise BadInput(f"{run} holds several adapters: {', '.join(sorted(found))}", "give --task one of these")
    (folder,) = (path.removesuffix(f"/{_CONFIG}") for path in found.values())
    return Adapter(join(run, folder), origin_of(store, folder))


def _configs(store: Store) -> list[str]:
    """Paths of the configurations of final adapters: of a job's tasks, or of the task itself."""
    found = [file.path.split("/") for file in store.list()]
    return ["/".join(parts) for parts in found if parts[-2:] == [_MODEL, _CONFIG] and len(parts) <= 3 and parts[0] != _CHECKPOINTS]


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


def _no_adapter(store: Store, run: str, task: str | None) -> tuple[str, str]:
    where = f"{run}: task {task}" if task else run
    if store.exists(f"{task}/{_MODEL}/config.json" if task else f"{_MODEL}/config.json"):
        return f"{where} trained all weights: there is nothing to merge", "use its model as it is"
    advice = "give the output of a finished LoRA, QLoRA or DoRA task; `tuneyard checkpoints convert` writes the adapter of a checkpoint"
    return f"{where} holds no adapter of a finished task", advice


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
