"""Finds a language model by what a person names: a run, the output of a task, a model folder, an adapter, or a Hugging Face name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuneyard.api import BadInput
from tuneyard.api.local_files import looks_like_path
from tuneyard.runtime.models import ADAPTER, CONFIG, base_of_adapter
from tuneyard.storage import NotFound, Store, is_local, join, local_path, open_store
from tuneyard.training.origin import Origin, origin_of

_MODEL, _MERGED, _CHECKPOINTS = "model", "merged", "checkpoints"
_REPORT, _RESULT, _RANKER = "report.json", "result.json", "ranker.json"


@dataclass(frozen=True)
class Trained:
    """A language model: URIs or Hugging Face names of its weights, and of the adapter for them, if any.

    `name`: its task, or what its folder is called. `revision`: of the weights at the Hugging Face hub. `base_uri`: the model that a run
    trained whole weights from; None where that is not known, or was random.
    """

    name: str
    model_uri: str
    adapter_uri: str | None
    revision: str | None = None
    base_uri: str | None = None
    base_revision: str | None = None

    @property
    def what(self) -> str:
        """For people: what is loaded."""
        return f"an adapter on {self.model_uri}" if self.adapter_uri else "whole weights"


def find_trained(given: str, task: str | None = None, *, with_base: bool = True) -> Trained:
    """The model at a folder, a URI, or a Hugging Face name.

    Of a job's output it is that of `task`, or of the last train task that has succeeded; weights and adapter are searched in the output, so
    that a copied folder works. Raises BadInput if there is no model, and, `with_base`, for an adapter of a job without its base.
    """
    if not looks_like_path(given) and not (is_local(given) and local_path(given).exists()):
        found: Trained | None = Trained(name_of(given), given, None)
    elif is_local(given) and not local_path(given).is_dir():
        raise BadInput(f"there is no folder {given}", "check the path: the output of `tuneyard run`, or the folder of a model")
    else:
        store = open_store(given)
        if store.exists(_REPORT):
            return _of_job(store, given, task, with_base=with_base)
        found = _of_folder(store, given)
    if task is not None:
        raise BadInput(f"{given} is not the output of a job, so that it has no train task {task}", "leave --task out")
    if found is None:
        raise BadInput(
            f"{given} is no run and no model: it holds no {_REPORT}, {_RESULT}, {CONFIG} or {ADAPTER}",
            "give the folder that `tuneyard run` wrote: the last line of its output; or the folder of a model",
        )
    return found


def _of_folder(store: Store, uri: str) -> Trained | None:
    """The model of a folder that is not the output of a job; None: there is none."""
    name = name_of(uri)
    if store.exists(_RANKER):
        raise BadInput(f"{uri} holds a ranker, which answers no prompts", "a score task scores tables with it")
    if store.exists(CONFIG):
        return Trained(name, uri, None, None, *_base_of_weights(uri))
    if (origin := base_of_adapter(uri)) is not None:
        return Trained(name, origin.base, uri, origin.revision)
    if store.exists(_RESULT):
        return _trained(uri, name, json.loads(store.get(_RESULT)), store)
    return None


def _base_of_weights(uri: str) -> tuple[str | None, str | None]:
    """See `_base`, for the folder of whole weights; nothing where no task of ours has made it."""
    if not is_local(uri) or not (local_path(uri).parent / _RESULT).is_file():
        return None, None
    store = open_store(str(local_path(uri).absolute().parent))
    return _base(json.loads(store.get(_RESULT)), store)


def name_of(uri: str) -> str:
    """What people call a model: `first` of runs/first, `train` of runs/first/train/model, and a Hugging Face name as it is."""
    if not looks_like_path(uri) and not (is_local(uri) and local_path(uri).exists()):
        return uri
    parts = [part for part in (str(local_path(uri).absolute()) if is_local(uri) else uri).split("/") if part]
    if len(parts) > 1 and parts[-1] in (_MODEL, _MERGED):
        parts.pop()
    return parts[-1]


def _of_job(store: Store, out: str, task: str | None, *, with_base: bool) -> Trained:
    kinds = _kinds(store, out)
    trains = [name for name, kind in kinds.items() if kind == "train"]
    if task is not None and task not in trains:
        known = f"it has {', '.join(trains)}" if trains else "it has none"
        raise BadInput(f"{out} has no train task {task}: {known}", "give --task one of these, or leave it out")
    for name in reversed([task] if task else trains):
        if store.exists(f"{name}/{_RESULT}"):
            return _trained(join(out, name), name, json.loads(store.get(f"{name}/{_RESULT}")), store, name, with_base=with_base)
    which = f"task {task}" if task else "a train task"
    raise BadInput(f"{out}: {which} has not ended yet, or failed" if trains else f"{out}: no train task ran here", _advice(out, trains))


def _trained(own: str, name: str, result: Mapping[str, Any], store: Store, folder: str = "", *, with_base: bool = True) -> Trained:
    """The model of a finished task. `own`: the task's output, which is `folder` in `store`."""
    if not any(result.get(f"{kind}_uri") for kind in ("model", "adapter", "merged")):
        raise BadInput(f"{own} is the output of a task that trained no language model", "give the output of a train task")
    if "program" in (result.get("details") or {}):
        raise BadInput(f"{own} holds the model of a training program, which answers no prompts", "load it by the program's own code")
    if result.get("adapter_uri") and not result.get("merged_uri"):
        adapter = join(own, _MODEL)
        if with_base:
            base_of_adapter(adapter)  # a base that is not there, or has changed, is refused
        return Trained(name, str(result["base_model_uri"]), adapter, result.get("base_revision"))
    weights = _MERGED if result.get("merged_uri") else _MODEL
    return Trained(name, join(own, weights), None, None, *_base(result, store, folder))


def _base(result: Mapping[str, Any], store: Store, folder: str = "") -> tuple[str | None, str | None]:
    """The model that a task started from, and its revision; nothing where it was random."""
    path = join(folder, "task.json")
    train = json.loads(store.get(path)).get("task", {}).get("train", {}) if store.exists(path) else {}
    if (train.get("model") or {}).get("init") == "scratch":
        return None, None
    return result.get("base_model_uri"), result.get("base_revision")


@dataclass(frozen=True)
class Adapter:
    """An adapter of a finished task."""

    uri: str
    origin: Origin


def find_adapter(run: str, task: str | None = None) -> Adapter:
    """The adapter in `run`: the output of a job or of a task, or the folder of an adapter. Raises BadInput if there is none, or several."""
    store = open_store(run)
    if store.exists(ADAPTER):
        return Adapter(run, origin_of(store, ""))
    found = {path.removesuffix(f"{_MODEL}/{ADAPTER}").rstrip("/"): path for path in _configs(store)}
    if task is not None:
        found = {name: path for name, path in found.items() if name == task}
    if not found:
        raise BadInput(*_no_adapter(store, run, task))
    if len(found) > 1:
        raise BadInput(f"{run} holds several adapters: {', '.join(sorted(found))}", "give --task one of these")
    (folder,) = (path.removesuffix(f"/{ADAPTER}") for path in found.values())
    return Adapter(join(run, folder), origin_of(store, folder))


def _configs(store: Store) -> list[str]:
    """Paths of the configurations of final adapters: of a job's tasks, or of the task itself."""
    found = [file.path.split("/") for file in store.list()]
    return ["/".join(parts) for parts in found if parts[-2:] == [_MODEL, ADAPTER] and len(parts) <= 3 and parts[0] != _CHECKPOINTS]


def _no_adapter(store: Store, run: str, task: str | None) -> tuple[str, str]:
    where = f"{run}: task {task}" if task else run
    if store.exists(f"{task}/{_MODEL}/config.json" if task else f"{_MODEL}/config.json"):
        return f"{where} trained all weights: there is nothing to merge", "use its model as it is"
    advice = "give the output of a finished LoRA, QLoRA or DoRA task; `tuneyard checkpoints convert` writes the adapter of a checkpoint"
    return f"{where} holds no adapter of a finished task", advice


def _kinds(store: Store, out: str) -> dict[str, str]:
    """Task -> kind, in the order of the report."""
    try:
        report = json.loads(store.get(_REPORT))
        return {name: str(task.get("kind")) for name, task in report["tasks"].items()}
    except NotFound:
        raise BadInput(f"{out} holds no report.json", "give the folder that `tuneyard run` wrote: the last line of its output") from None
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise BadInput(f"{out}/report.json is damaged: {error}", "run the job again with --resume: finished tasks are kept") from error


def _advice(out: str, trains: list[str]) -> str:
    return f"tuneyard report {out} says how far it is" if trains else "give the output of a job with a train task"
