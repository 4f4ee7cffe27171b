"""Finds the language model that a person or a JobSpec names. Every field and command that takes a model asks here.

What is named may be the output of a job, its report.json, the output of a task, the folder of a model or of an adapter, a URI of any of
these, or a Hugging Face name. `find_place` answers where the model's own files are, and `find_model` reads and checks them. Reads small
files and headers of weights, and loads no torch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from typing import Any

from tuneyard.api import BadInput
from tuneyard.api.local_files import hub_name, looks_like_path
from tuneyard.api.quoting import quoted
from tuneyard.catalog.adapter_files import CONFIG as ADAPTER
from tuneyard.catalog.adapter_files import PICKLED, WEIGHTS, check_adapter_files
from tuneyard.storage import Store, is_local, join, local_path, open_store
from tuneyard.storage.marks import changed_marks, model_marks
from tuneyard.storage.near import near_folder
from tuneyard.training.origin import Origin, origin_of

CONFIG, MODULES = "config.json", "modules.json"
"""Of a language model or an encoder; and of an encoder in the layout of sentence-transformers."""
_REPORT, _RESULT, _RANKER, _CERTIFICATE = "report.json", "result.json", "ranker.json", "provenance.json"
_MODEL, _MERGED, _CHECKPOINTS = "model", "merged", "checkpoints"
_WHOLE = ("model*.safetensors", "pytorch_model*.bin")
_SHOWN = 5
_ADVICE = "give the folder of a finished `tuneyard run`, of its train task, or of a model"
_NO_MODELS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        ("checkpoints/*", "*/checkpoints/*", "log/*.json", "rank-*.json"),
        "holds checkpoints, and no finished model",
        "finish the run (tuneyard run --resume), or write the model of a checkpoint: tuneyard checkpoints convert",
    ),
    (
        ("zero_to_fp32.py", "*_states.pt", "*/*_states.pt"),
        "holds a checkpoint of DeepSpeed, and no model",
        "write its weights beside config.json and tokenizer: python zero_to_fp32.py CHECKPOINT FOLDER --safe_serialization",
    ),
    (("*.gguf",), "holds a GGUF file, which llama.cpp reads", "give the model that it was exported from"),
    (("optimizer*.pt", "optimizer*.bin", "scheduler.pt"), "holds the state of an optimizer, and no model", _ADVICE),
    ((*_WHOLE, WEIGHTS, "*.bin"), f"holds weights, and no {CONFIG} or {ADAPTER}", "put the configuration that belongs to them beside them"),
)
"""Patterns of paths in a folder without a model, in the order in which they are looked for; what the folder holds; the next step."""


@dataclass(frozen=True)
class FoundModel:
    """A language model: URIs or Hugging Face names of its weights, and of the adapter for them, if any.

    `name`: its task, or what its folder is called. `revision`: of the weights at the Hugging Face hub. `origin`: what an adapter was
    trained on. `base_uri`: the model that a run trained whole weights from; None where that is not known, or was random.
    """

    name: str
    model_uri: str
    adapter_uri: str | None = None
    revision: str | None = None
    base_uri: str | None = None
    base_revision: str | None = None
    origin: Origin | None = None

    @property
    def uri(self) -> str:
        """Where its own files are: of an adapter, the adapter's."""
        return self.adapter_uri or self.model_uri

    @property
    def what(self) -> str:
        """For people: what is loaded."""
        return f"an adapter on {self.model_uri}" if self.adapter_uri else "whole weights"


def find_model(given: str, task: str | None = None, *, merged: bool = True, checked: bool = True) -> FoundModel:
    """The model that is named; see `find_place`. `checked`: an adapter needs its base, unchanged, and its weights.

    Raises BadInput if there is no model, if a folder that Tuneyard wrote has lost files, and, `checked`, for an adapter that cannot be
    used.
    """
    uri = find_place(given, task, merged=merged)
    if is_name(uri):
        return FoundModel(uri, uri)
    store = open_store(uri)
    _refuse_half_deleted(store, uri)
    if (origin := _origin_of(store, uri)) is not None:
        if checked:
            _check_adapter(uri, origin)
        return FoundModel(name_of(uri), origin.base, uri, origin.revision, origin=origin)
    if not store.exists(CONFIG):
        raise _no_model(uri)
    return FoundModel(name_of(uri), uri, None, None, *_trained_from(uri))


def find_place(given: str, task: str | None = None, *, merged: bool = True) -> str:
    """The absolute folder or the URI of a model's own files, or a Hugging Face name. Files are not checked.

    Of a job's output it is the model of `task`, or of the last train task that has succeeded. Weights and adapter are searched in the
    output, so that a copied folder works. `merged`: of a task that wrote both, the merged weights and not the adapter. Raises BadInput.
    """
    name = hub_name(given)
    if name != given and (not name or looks_like_path(name)):
        raise BadInput(f"{given} is no name of a model of the Hugging Face hub", "write hf://owner/name")
    if name != given and not is_name(name):
        cause = f"{given} is a model of the Hugging Face hub, and there is a folder {name} here, which would be loaded in its place"
        raise BadInput(cause, f"name the folder ./{name}, or call the command in another folder")
    if is_name(name):
        found, is_job = name, False
    else:
        store = open_store(_folder(given))
        found, is_job = _find_below(store, given, task, merged=merged)
    if task is not None and not is_job:
        raise BadInput(f"{given} is not the output of a job, so that it has no train task {task}", "leave --task out")
    return found


def is_name(given: str) -> bool:
    """Whether a model is named by its Hugging Face name: with hf://, or there is no folder of that name."""
    return hub_name(given) != given or not (looks_like_path(given) or os.path.lexists(local_path(given)))


def holds_model(uri: str) -> bool:
    """Whether a folder or URI holds a language model or the output of a run, or is a file."""
    if is_local(uri) and local_path(uri).is_file():
        return True
    store = open_store(uri)
    records = any(store.exists(name) for name in (CONFIG, ADAPTER, _RESULT, _REPORT))
    return records or any(_owner(path) is not None for path in _paths(store))


def name_of(uri: str) -> str:
    """What people call a model: `first` of runs/first, `train` of runs/first/train/model, and a Hugging Face name without hf://."""
    if is_name(uri):
        return hub_name(uri)
    parts = [part for part in (str(local_path(uri).absolute()) if is_local(uri) else uri).split("/") if part]
    if len(parts) > 1 and parts[-1] in (_MODEL, _MERGED, _REPORT):
        parts.pop()
    return parts[-1]


def _folder(given: str) -> str:
    """The folder that is named, itself or by its report.json."""
    if not is_local(given):
        return given.removesuffix(f"/{_REPORT}").rstrip("/")
    path = local_path(given)
    if path.name == _REPORT and path.is_file():
        return str(path.parent)
    if path.is_file():
        cause = "is a GGUF file, which llama.cpp reads" if path.suffix == ".gguf" else "is a file, and a model is a folder"
        raise BadInput(f"{given} {cause}", f"give the folder of the model, such as {path.parent}")
    if not path.is_dir():
        if path.is_symlink():
            raise BadInput(f"{given} is a link to {path.readlink()}, and there is no such folder", "make the link anew")
        near = near_folder(path)
        raise BadInput(f"there is no folder {given}", (f"did you mean {near}? If not, " if near else "check the path; ") + _ADVICE)
    return str(path)


def _find_below(store: Store, given: str, task: str | None, *, merged: bool) -> tuple[str, bool]:
    """The place of the model in a folder, and whether the folder is a job's output."""
    if store.exists(_RANKER):
        raise BadInput(f"{given} holds a ranker, which answers no prompts", "a score task scores tables with it")
    if any(store.exists(name) for name in (ADAPTER, CONFIG, MODULES, _CERTIFICATE)):
        return store.uri, False
    if store.exists(_RESULT):
        return _of_task(store, "", merged=merged), False
    if store.exists(_REPORT):
        return _of_task(store, _last_trained(store, given, task), merged=merged), True
    return _without_records(store, given, task, merged=merged), True


def _without_records(store: Store, given: str, task: str | None, *, merged: bool) -> str:
    """The model in the output of a job or a task that has lost its records, or was copied without them."""
    paths = _paths(store)
    in_checkpoints = any(_matches(path, "log/*.json") for path in paths)
    owners = set() if in_checkpoints else {owner for path in paths if (owner := _owner(path)) is not None and task in (None, owner)}
    if len(owners) > 1:
        raise BadInput(f"{given} holds several models: {', '.join(sorted(owners))}", "give --task one of these")
    if not owners:
        raise _no_model(given, paths) if task is None else BadInput(f"{given} holds no finished model of task {task}", _ADVICE)
    (owner,) = owners
    folders = [name for name in (_MERGED, _MODEL) if any(join(owner, name, each) in paths for each in (ADAPTER, CONFIG))]
    return store.url(join(owner, folders[0 if merged else -1]))


def _paths(store: Store) -> list[str]:
    """Paths of files in a folder without records of a run. On this machine, of the first three levels: it may be anyone's home."""
    if not is_local(store.uri):
        return [file.path for file in store.list()]
    root, found = local_path(store.uri), list[str]()
    for level in ("*", "*/*", "*/*/*"):
        with suppress(OSError):  # folders that others change, or keep to themselves
            found += [path.relative_to(root).as_posix() for path in root.glob(level)]
    return sorted(found)


def _owner(path: str) -> str | None:
    """The task whose final model has its configuration at this path: TASK/model/config.json, or model/config.json (empty)."""
    *owner, folder, name = ("", *path.split("/"))
    is_final = len(owner) in (1, 2) and folder in (_MODEL, _MERGED) and name in (ADAPTER, CONFIG) and _CHECKPOINTS not in owner
    return owner[-1] if is_final else None


def _matches(path: str, pattern: str) -> bool:
    """Whether a path, or a folder above it, has this pattern."""
    parts, wanted = path.split("/"), pattern.split("/")
    return len(parts) >= len(wanted) and all(map(fnmatch, parts, wanted))


def _last_trained(store: Store, given: str, task: str | None) -> str:
    """The train task of a job's output whose model is meant."""
    tasks = _reported(store, given)
    trains = [name for name, about in tasks.items() if about.get("kind") == "train"]
    if task is not None and task not in trains:
        known = f"it has {', '.join(trains)}" if trains else "it has none"
        raise BadInput(f"{given} has no train task {task}: {known}", "give --task one of these, or leave it out")
    wanted = [task] if task is not None else trains
    for name in reversed(wanted):
        if store.exists(f"{name}/{_RESULT}"):
            return name
    if not trains:
        if any(about.get("kind") == "rank" for about in tasks.values()):
            raise BadInput(f"{given} trained a ranker, which answers no prompts", "a score task scores tables with it")
        raise BadInput(f"{given}: no train task ran here", "give the output of a job with a train task")
    said = ", ".join(f"{name} is {tasks[name].get('status', 'unknown')}" for name in wanted)
    step = f"tuneyard report {quoted(given)} says how far it is; tuneyard run FILE --out {quoted(given)} --resume goes on"
    raise BadInput(f"{given} holds no finished model: by its report, {said}", step)


def _reported(store: Store, given: str) -> dict[str, Mapping[str, Any]]:
    """The entries of tasks in a report, in its order. In the folder of a task, a report has that task alone."""
    try:
        report = json.loads(store.get(_REPORT))
        tasks = report["tasks"] if "tasks" in report else {name_of(store.uri): report["task"]}
        return {name: dict(about) for name, about in tasks.items()}
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise BadInput(f"{given}/{_REPORT} is damaged: {error}", "run the job again with --resume: finished tasks are kept") from error


def _of_task(store: Store, folder: str, *, merged: bool) -> str:
    """The model in the output of a finished task, which is `folder` in the store."""
    own = store.url(folder)
    result = _read_json(store, join(folder, _RESULT))
    if not any(result.get(f"{kind}_uri") for kind in ("model", "adapter", "merged")):
        raise BadInput(f"{own} is the output of a task that trained no language model", "give the output of a train task")
    if "program" in (result.get("details") or {}):
        raise BadInput(f"{own} holds the model of a training program, which answers no prompts", "load it by the program's own code")
    return join(own, _MERGED if merged and result.get("merged_uri") else _MODEL)


def _trained_from(uri: str) -> tuple[str | None, str | None]:
    """The model that a task of ours started from, and its revision; nothing where no task of ours made the folder, or it was random."""
    task = _task_around(uri)
    if task is None:
        return None, None
    result = _read_json(task, _RESULT)
    train = _read_json(task, "task.json").get("task", {}).get("train", {}) if task.exists("task.json") else {}
    if (train.get("model") or {}).get("init") == "scratch":
        return None, None
    return result.get("base_model_uri"), result.get("base_revision")


def _task_around(uri: str) -> Store | None:
    """The output of the task of ours that made a model folder; None where there are no records of one."""
    parent, _, name = uri.rpartition("/")
    if name not in (_MODEL, _MERGED) or parent.endswith(":/"):  # a bucket of that name has nothing around it
        return None
    store = open_store(parent or "/")
    return store if store.exists(_RESULT) else None


def _read_json(store: Store, path: str) -> dict[str, Any]:
    try:
        return dict(json.loads(store.get(path)))
    except (ValueError, TypeError) as error:
        raise BadInput(f"{store.url(path)} is damaged: {error}", "run the job again with --resume: finished tasks are kept") from error


def _origin_of(store: Store, uri: str) -> Origin | None:
    """What the adapter in a folder was trained on; None: the folder holds no adapter.

    Some tools save the config.json of the base beside an adapter, so the weights decide what a folder with both is. Raises BadInput for
    weights of both: transformers would load the adapter on top of the model, and vLLM the model alone.
    """
    if not store.exists(ADAPTER):
        return None
    if store.exists(CONFIG) and (whole := [path for path in _paths(store) if "/" not in path and any(map(partial(fnmatch, path), _WHOLE))]):
        if not any(store.exists(name) for name in (WEIGHTS, PICKLED)):
            return None
        cause = f"{uri} holds both a model ({whole[0]}) and an adapter ({ADAPTER})"
        raise BadInput(cause, "put the files of the adapter into a folder of their own")
    task = _task_around(uri)
    try:  # the records of the task that made the folder say more than the folder alone
        return origin_of(store) if task is None or not uri.endswith(f"/{_MODEL}") else origin_of(task, _MODEL)
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise BadInput(f"{ADAPTER} of {uri} cannot be read: {error}", "save the adapter again") from error


def _check_adapter(uri: str, origin: Origin) -> None:
    """Raises BadInput where an adapter lacks weights, or its base is not known, was not kept, is not there, or has changed."""
    merge = f"tuneyard merge {quoted(uri)} --out MERGED"
    if not origin.base or origin.from_scratch:
        why = "was trained on random weights, which were not kept" if origin.from_scratch else "does not name its base model"
        raise BadInput(f"the adapter {uri} {why}", f"merge it with its base first: {merge} --base MODEL")
    folder = local_path(origin.base) if is_local(origin.base) and looks_like_path(origin.base) else None
    copy = f"or merge the adapter with a copy of it: {merge} --base COPY"
    if folder is not None and not folder.is_dir():
        raise BadInput(f"the adapter {uri} was trained on {origin.base}, and there is no such folder", f"restore it there, {copy}")
    if looks_like_path(origin.base) and find_model(origin.base, checked=False).origin is not None:
        advice = f"merge that one first: tuneyard merge {quoted(origin.base)} --out FOLDER; then {merge} --base FOLDER"
        raise BadInput(f"the base of the adapter {uri} is an adapter itself: {origin.base}", advice)
    if changed := changed_marks(origin.marks, model_marks(folder)) if folder is not None and origin.marks else []:
        cause = f"{origin.base} has changed since the adapter {uri} was trained on it: {', '.join(changed[:3])}"
        raise BadInput(cause, f"restore it, {copy}")
    if is_local(uri):
        check_adapter_files(local_path(uri), folder, finite=False)


def lost_files(store: Store) -> list[str]:
    """Files that the folder of a model lacks since Tuneyard committed it, and weights of another size. Empty for folders of other tools."""
    if not store.is_complete(""):
        return []
    sizes, written = {file.path: file.size_bytes for file in store.list()}, store.manifest("").files
    cut = {file.path for file in written if file.path.endswith(".safetensors") and sizes.get(file.path) != file.size_bytes}
    return sorted(cut | {file.path for file in written if file.path not in sizes})


def _refuse_half_deleted(store: Store, uri: str) -> None:
    if lost := lost_files(store):
        raise BadInput(
            f"{uri} has lost files since it was written, or they were changed: {', '.join(lost[:3])}",
            "take the folder from a copy, or run the job again with --resume",
        )


def _no_model(given: str, paths: list[str] | None = None) -> BadInput:
    """Why a folder holds no model, by what it holds instead."""
    paths = paths if paths is not None else _paths(open_store(given))
    if not paths and not is_local(given):
        return BadInput(f"there is nothing at {given}", f"check the URI; {_ADVICE}")
    if is_local(given) and not local_path(given).is_dir():
        cause = f"{given} does not exist, though the records of its task name it"
        return BadInput(cause, "take the folder from a copy, or run the job again with --resume")
    for patterns, cause, step in _NO_MODELS:
        if any(_matches(path, each) for path in paths for each in patterns):
            return BadInput(f"{given} {cause}", step)
    found = {path.rpartition("/")[0] for path in paths if path.rpartition("/")[2] in (ADAPTER, CONFIG, _RESULT, _REPORT)} - {""}
    if below := sorted(each for each in found if not any(each.startswith(f"{other}/") for other in found)):
        some = ", ".join(below[:_SHOWN]) + (", …" if len(below) > _SHOWN else "")
        return BadInput(f"{given} is not a model; below it there are {some}", f"name one of these, such as {join(given, below[0])}")
    if "job.json" in paths:
        step = f"wait for it, or go on: tuneyard run FILE --out {quoted(given)} --resume"
        return BadInput(f"{given} is the output of a job that has no report yet", step)
    return BadInput(f"{given} is not a model: it has no {CONFIG}, and no {ADAPTER}", _ADVICE)
