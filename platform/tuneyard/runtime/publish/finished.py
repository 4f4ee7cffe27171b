"""Finds the model that a person names: by a job's output, a task's output, or a model folder."""

from __future__ import annotations

from dataclasses import dataclass

from tuneyard.api import BadInput
from tuneyard.runtime.trained import find_trained
from tuneyard.storage import Store, is_local, join, local_path, open_store
from tuneyard.training.origin import Origin, origin_of

_ADVICE = "give the folder of a finished `tuneyard run`, of its train task, or of a model"
_ADAPTER, _CONFIG = "adapter_config.json", "config.json"


@dataclass(frozen=True)
class Finished:
    """`origin`: what an adapter was trained on; None: whole weights."""

    uri: str
    origin: Origin | None


def find_finished(given: str, task: str | None = None, *, with_base: bool = True) -> Finished:
    """The model in `given`: the output of a job or of a task, a model folder, or the folder of an adapter. Of a job, the last train task
    that has succeeded, or `task`; of a task with `merge: true`, the merged model.

    Raises BadInput if there is none, if a committed model folder has lost a file, and, `with_base`, if the base that an adapter names is
    not there or has changed.
    """
    store = open_store(given)
    uri = given
    if not any(store.exists(name) for name in (_ADAPTER, _CONFIG)):
        uri = _of_run(store, given, task, with_base=with_base)
        store = open_store(uri)
    elif task is not None:
        raise BadInput(f"{given} is not the output of a job, so that it has no train task {task}", "leave --task out")
    _refuse_half_deleted(store, uri)
    if store.exists(_ADAPTER):
        return Finished(uri, origin_of(store))
    if not store.exists(_CONFIG):
        raise BadInput(f"{uri} has no {_CONFIG}: it is no model that from_pretrained loads", _ADVICE)
    return Finished(uri, None)


def _of_run(store: Store, given: str, task: str | None, *, with_base: bool) -> str:
    if store.exists("report.json"):
        found = find_trained(given, task, with_base=with_base)
        return found.adapter_uri or found.model_uri
    paths = [file.path.split("/") for file in store.list()]
    models = dict[str, set[str]]()
    for parts in filter(_is_final, paths):
        models.setdefault("/".join(parts[:-2]), set()).add(parts[-2])
    if task is not None:
        models = {name: folders for name, folders in models.items() if name == task}
    if len(models) > 1:
        raise BadInput(f"{given} holds several models: {', '.join(sorted(models))}", "give --task one of these")
    for name, folders in models.items():
        return join(given, name, "merged" if "merged" in folders else "model")
    if is_local(given) and not local_path(given).exists():
        raise BadInput(f"there is no folder {given}", _ADVICE)
    if any("checkpoints" in parts[:2] for parts in paths):
        raise BadInput(
            f"{given} holds checkpoints, and no finished model",
            "finish the run (tuneyard run --resume), or write the model of a checkpoint: tuneyard checkpoints convert",
        )
    raise BadInput(f"{given} holds no finished model" + (f" of task {task}" if task else ""), _ADVICE)


def _is_final(parts: list[str]) -> bool:
    """Whether the path of a file is that of a configuration in the output of a task, or of a job: [TASK/]model/config.json."""
    return len(parts) in (2, 3) and parts[-1] in (_ADAPTER, _CONFIG) and parts[-2] in ("model", "merged") and parts[0] != "checkpoints"


def _refuse_half_deleted(store: Store, uri: str) -> None:
    if not store.is_complete(""):
        return  # written by another tool
    sizes = {file.path: file.size_bytes for file in store.list()}
    lost = [file.path for file in store.manifest("").files if sizes.get(file.path) != file.size_bytes]
    if lost:
        raise BadInput(
            f"{uri} has lost files since it was written, or they were changed: {', '.join(lost[:3])}",
            "take the folder from a copy, or run the job again with --resume",
        )
