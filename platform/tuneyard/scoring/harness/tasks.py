"""Loads tasks of the harness as its own `simple_evaluate` does, and refuses those that cannot be scored here."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
from lm_eval.defaults import DEFAULT_OTHER_SEED, DEFAULT_RANDOM_SEED
from lm_eval.tasks import TaskManager
from lm_eval.tasks._index import Kind
from lm_eval.tasks._yaml_loader import load_yaml
from lm_eval.utils import set_torch_seed

from tuneyard.scoring.harness.unusable import Unusable

_OF_DATA = ("datasets", "huggingface_hub", "requests", "httpx", "fsspec", "aiohttp")
"""Packages whose errors are about the rows of a task."""
_SHOWN = 300
_OWN = "correct it in the folder of data.lmEval.folder"
_OTHER_DATA = (
    "allow the machine to reach the Hugging Face hub, with HF_TOKEN in the job's env for gated data; or give the rows with the task: "
    "dataset_path: json and dataset_kwargs: {data_files: …} in a YAML file of data.lmEval.folder"
)


def managed(names: Sequence[str], folder: Path | None) -> TaskManager:
    """The index that has all `names`. Own tasks alone are indexed where they suffice: the harness's have 14,000 names, and take 10 s.

    Raises Unusable: a YAML file of the folder that cannot be read, or an unknown name.
    """
    own = []
    if folder is not None:
        check_files(folder)
        manager = TaskManager(include_path=str(folder), include_defaults=False)
        own = manager.all_tasks
        if all(_is_complete(name, manager) for name in names):
            return manager
    manager = TaskManager(include_path=None if folder is None else str(folder))
    for name in names:
        if name not in manager.task_index:
            near = get_close_matches(name, own, n=3) or get_close_matches(name, manager.all_tasks, n=3)
            known = f"did you mean {' or '.join(near)}?" if near else "`lm-eval ls tasks` lists the names that it brings"
            raise Unusable(f"lm-evaluation-harness has no task, group or tag {name}{_in(folder)}", known)
    return manager


def _in(folder: Path | None) -> str:
    return ", and no YAML file of data.lmEval.folder has it" if folder is not None else ""


def _is_complete(name: str, manager: TaskManager) -> bool:
    """Whether the index has the task, or the group with all of its members."""
    entry = manager.task_index.get(name)
    if entry is None or entry.kind is Kind.TAG:
        return False
    members = entry.cfg.get("task") if entry.kind is Kind.GROUP and entry.cfg else []
    return all(isinstance(each, str) and _is_complete(each, manager) for each in (members if isinstance(members, list) else [members]))


def check_files(folder: Path) -> None:
    """Raises Unusable for a YAML file that cannot be read, which the harness's index leaves out, and for a folder without any."""
    files = sorted(folder.glob("**/*.yaml"))
    if not files:
        raise Unusable("the folder of data.lmEval.folder has no file that ends with .yaml", "name the folder with the tasks' YAML files")
    for file in files:
        try:
            load_yaml(file, resolve_func=False)
        except Exception as error:
            raise Unusable(f"{file.relative_to(folder)} of data.lmEval.folder cannot be read: {said(error)}", _OWN) from error


def loaded(names: Sequence[str], folder: Path | None, fewshot: int | None) -> tuple[dict[str, Any], list[str]]:
    """The tasks and groups as `evaluate` takes them, with the harness's usual seeds, and notes. Raises Unusable."""
    random.seed(DEFAULT_RANDOM_SEED)
    np.random.seed(DEFAULT_OTHER_SEED)
    set_torch_seed(DEFAULT_OTHER_SEED)
    manager = managed(names, folder)
    try:
        found: dict[str, Any] = dict(manager.load(list(names)))
    except Exception as error:
        raise _why_not_loaded(error, names, manager) from error
    notes = []
    for name, task in found["tasks"].items():
        _check(name, task)
        notes += _with_examples(name, task, fewshot)
    return found, notes


def _why_not_loaded(error: Exception, names: Iterable[str], manager: TaskManager) -> Unusable:
    """The error with the name of the task that causes it: the tasks are loaded again one by one."""
    culprit = None
    for name in names:
        try:
            manager.load([name])
        except Exception as again:  # noqa: BLE001 - code of tasks may raise anything
            culprit, error = name, again
            break
    if culprit is None:
        return Unusable(f"the tasks cannot be loaded together: {said(error)}", "name each task once, alone or by its group")
    if isinstance(error, IndexError):
        return Unusable(f"task {culprit} has no document", "look at its data, its splits and its process_docs")
    if isinstance(error, OSError) or type(error).__module__.partition(".")[0] in _OF_DATA:
        return Unusable(f"the data of task {culprit} cannot be had: {said(error)}", _OTHER_DATA)
    return Unusable(f"task {culprit} cannot be loaded: {said(error)}", f"{_OWN}, if it is yours; or leave it out")


def _check(name: str, task: Any) -> None:
    if getattr(task, "MULTIMODAL", False):
        raise Unusable(f"task {name} shows images or sounds to the model, and score tasks have prompts of text", "leave it out")
    if getattr(task, "UNSAFE_CODE", False):
        raise Unusable(f"task {name} runs code that the model writes, and there is no sandbox for it", "leave it out")
    if not len(task.eval_docs):
        raise Unusable(f"task {name} has no document", "look at its data, its splits and its process_docs")


def _with_examples(name: str, task: Any, fewshot: int | None) -> list[str]:
    """Set the number of examples as `simple_evaluate` does: a task that says 0 itself keeps it. Raises Unusable where there are too few."""
    notes = []
    own = task.get_config("num_fewshot")
    if fewshot is not None and own == 0 and fewshot > 0:
        notes.append(f"task {name} says num_fewshot: 0 itself, so that its prompts have no examples")
    elif fewshot is not None or own is None:
        task.set_config(key="num_fewshot", value=fewshot or 0)
    task.set_fewshot_seed(seed=DEFAULT_OTHER_SEED)
    shots = task.get_config("num_fewshot") or 0
    there = len(getattr(getattr(task, "sampler", None), "df", None) or ())
    config, examples = getattr(task, "config", None), getattr(task, "fewshot_cfg", None)
    needed = shots + (1 if examples is not None and config is not None and examples.split == config.test_split else 0)
    if shots and hasattr(task, "sampler") and needed > there:
        raise Unusable(
            f"task {name} has {there} examples to draw from, and its prompts need {needed}",
            f"set data.lmEval.fewshot to at most {max(0, there - needed + shots)}",
        )
    return notes


def said(error: BaseException) -> str:
    """The type and the first line of an error."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {text}"[:_SHOWN]


def guarded(what: str, run: Callable[[], Any]) -> Any:
    """`run()`, with errors of the tasks' code as Unusable. `what`: what it does, for the message."""
    try:
        return run()
    except Unusable:
        raise
    except Exception as error:
        raise Unusable(
            f"the tasks' code cannot {what}: {said(error)}", "the log of lm-evaluation-harness beside it has the whole error"
        ) from error
