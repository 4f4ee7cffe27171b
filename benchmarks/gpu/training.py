"""Trains one case for a few steps through `tuneyard.training`, and tells what it measured. Nothing is saved: it ends at its last step."""

from __future__ import annotations

import gc
import json
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import torch
from benchmarks.gpu.cases import LENGTH, Case
from benchmarks.gpu.predictions import predicted
from benchmarks.gpu.results import MODELS, WORK
from tests.builders.models import tokenizer_of, train_request, train_task, why_refused
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, set_seed

from tuneyard.catalog import local_sku
from tuneyard.catalog.cpu import machine_memory_gb
from tuneyard.planning import Plan
from tuneyard.tracking.events import Event, Step
from tuneyard.training import TrainRequest, train

WARMED_AFTER = 2
"""Steps that are left out of the rates: they load kernels, and plan them."""

_LEFT_GB, _LEFT_ON_HOST_GB = 1.0, 12.0


class NotHere(Exception):
    """Why a case cannot run on this machine."""


class _Measured(Exception):
    """Ends a run after its last step, before anything is saved."""


def measure(case: Case, *, refuse: bool = True) -> dict[str, Any]:
    """What the case showed, beside what the planner says.

    Raises NotHere for a case that has no room here. `refuse`: whether one is among them that the rules or the planner refuse.
    """
    sku = local_sku()
    began = time.monotonic()
    prediction = predicted(case, sku)
    request = _request(case, sku)
    if refuse and (why := why_refused(request)):
        raise NotHere(why)
    _refuse_host(prediction.host_gb)
    started = time.monotonic()
    with _host_memory() as host:
        steps = _steps_of(request, case.steps)
    kept = steps[min(WARMED_AFTER, len(steps) - 1) :]
    on_gpu = torch.cuda.is_available()
    return {
        "case": case.name,
        "tokens_per_s": sum(step.tokens_per_s for step in kept) / len(kept),
        "mfu": sum(step.mfu for step in kept) / len(kept),
        "allocated_gb": torch.cuda.max_memory_allocated() / 1e9 if on_gpu else 0.0,
        "reserved_gb": torch.cuda.max_memory_reserved() / 1e9 if on_gpu else 0.0,
        "host_gb": host[0],
        "losses": [step.loss for step in steps],
        "step_s": [step.step_s for step in steps],
        "split": vars(kept[-1].split),
        "predicted": prediction.to_dict(),
        "made_s": started - began,
        "seconds": time.monotonic() - began,
    }


def is_clean() -> bool:
    """Free what a case has left. False if the next case needs a fresh process to have the machine for itself."""
    gc.collect()
    if not torch.cuda.is_available():
        return True
    torch.cuda.empty_cache()
    getattr(torch._C, "_host_emptyCache", lambda: None)()  # pinned memory, which torch keeps
    held = psutil.Process().memory_info().rss / 1e9
    return torch.cuda.memory_allocated() / 1e9 < _LEFT_GB and held < _LEFT_ON_HOST_GB and _pinned_gb() < _LEFT_GB


def _pinned_gb() -> float:
    statistics = getattr(torch.cuda, "host_memory_stats", dict)()
    return float(statistics.get("allocated_bytes.current", 0)) / 1e9


def _steps_of(request: TrainRequest, count: int) -> list[Step]:
    steps: list[Step] = []

    def watch(event: Event) -> None:
        if isinstance(event, Step):
            steps.append(event)
            if event.step >= count - 1:  # events come one step late, and the last step would save
                raise _Measured

    with suppress(_Measured):
        train(request, emit=watch)
    return steps


def _request(case: Case, sku: str) -> TrainRequest:
    plan = Plan(sku=sku, nvme_path=str(WORK / "offloaded"), **case.plan_fields)
    model = _model_of(case)
    text = _text_of(model, case.samples)
    data = {"source": str(text), "maxLength": LENGTH, "pack": True}
    task = train_task(model, text, method=case.method_fields, steps=case.steps, data=data, batch={"global": plan.global_batch})
    return train_request(WORK / "runs" / "".join(filter(str.isalnum, case.name)), task, plan, refused=None)


def _refuse_host(pinned_gb: float) -> None:
    free = min(machine_memory_gb(), psutil.virtual_memory().available / 1e9)
    if pinned_gb > free:
        raise NotHere(f"it takes {pinned_gb:.0f} GB of the host's memory, and {free:.0f} GB are free")


def _model_of(case: Case) -> Path:
    """Random weights in bf16, made on the device, with a small tokenizer: only the shape matters for speed."""
    folder = MODELS / case.shape
    if not folder.exists():
        needed, free = 2 * case.model_shape.parameters / 1e9, shutil.disk_usage(WORK).free / 1e9
        if needed + 2 > free:
            raise NotHere(f"the model takes {needed:.0f} GB of disk, and {free:.0f} GB are free in {WORK}")
        set_seed(7)  # each section may make the model anew, and its losses are compared
        with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
            model = AutoModelForCausalLM.from_config(LlamaConfig(**case.config), dtype=torch.bfloat16)
        partial = folder.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        tokenizer_of([], eos="<|end|>", chat_template=None).save_pretrained(partial)
        model.save_pretrained(partial)
        partial.rename(folder)
        del model
        is_clean()
    return folder


def _text_of(model: Path, samples: int) -> Path:
    """Texts that fill a row by the given number of samples."""
    path = WORK / f"text-{samples}-of-{LENGTH}.jsonl"
    if not path.exists():
        tokenizer = AutoTokenizer.from_pretrained(model)
        words = ["cat" if i % 3 else "dog" for i in range(LENGTH)]
        ends = [end for _, end in tokenizer(" ".join(words), return_offsets_mapping=True)["offset_mapping"]]
        text = " ".join(words)[: ends[LENGTH // samples - 2]]  # an end token follows each sample
        path.write_text((json.dumps({"text": text}) + "\n") * (64 * samples))
    return path


@contextmanager
def _host_memory() -> Iterator[list[float]]:
    """The largest rise of the memory that this machine uses, in 1e9 bytes: pinned pages are in no process's resident memory."""
    ended, found = threading.Event(), [0.0]
    before = psutil.virtual_memory().available

    def watch() -> None:
        while not ended.wait(0.2):
            found[0] = max(found[0], (before - psutil.virtual_memory().available) / 1e9)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield found
    finally:
        ended.set()
        watcher.join()
