"""Folders of tiny models loaded in shards by real ranks, beside `from_pretrained`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tests.ranks.applied_models import Case, batch_of, plan_here
from tests.ranks.forks import Call, called
from tests.ranks.groups import group


def differences_of_loaded(cases: list[Case], folder: Path, degree: int) -> dict[str, list[str]]:
    """For each case what differs from the saved model: parameters that are other numbers, and `logits` if these are."""
    for case in cases:
        case.model().save_pretrained(folder / case.model_type)
    calls = [Call(_loaded, (cases, folder, degree), place) for place in group(degree, per_machine=degree)]
    answers: list[dict[str, list[str]]] = called(calls)
    return {case.model_type: [name for answer in answers for name in answer[case.model_type]] for case in cases}


def _loaded(cases: list[Case], folder: Path, degree: int) -> dict[str, list[str]]:
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    found = {case.model_type: _differing(case, folder / case.model_type, degree) for case in cases}
    dist.destroy_process_group()
    return found


def _differing(case: Case, folder: Path, degree: int) -> list[str]:
    import torch.distributed as dist

    from tuneyard.parallel import load_sharded, shard_model

    plan = plan_here(case, degree)
    model = case.model(meta=True).eval()
    shards = shard_model(model, plan, dist.group.WORLD)
    load_sharded(model, shards, folder)
    whole = type(model).from_pretrained(folder).eval()
    expected = dict(whole.named_parameters())
    found = [name for name, weight in model.named_parameters() if not torch.equal(weight, shards.cut(name, expected[name]))]
    found += [name for name, buffer in whole.named_buffers() if not torch.equal(buffer, model.get_buffer(name))]
    found += [] if set(expected) == {name for name, _ in model.named_parameters()} else ["names of parameters"]
    with torch.no_grad():
        ours, theirs = (_states(each(**batch_of(whole))) for each in (model, whole))
    return found if torch.allclose(ours, theirs, atol=1e-5) else [*found, "logits"]


def _states(answer: Any) -> torch.Tensor:
    states: torch.Tensor = answer["logits"] if "logits" in answer else answer["last_hidden_state"]
    return states


def in_ranks(function: Callable[..., Any], degree: int, *arguments: Any) -> list[Any]:
    """What each rank of a new group answers."""
    return called([Call(function, arguments, place) for place in group(degree, per_machine=degree)])


def saved(case: Case, folder: str) -> None:
    """Writes the case's model into a folder."""
    case.model().save_pretrained(folder)


def measured_whole(case: Case, folder: str) -> dict[str, Any]:
    """Megabytes of the weights, of the largest, and of the peak while all of them are loaded; seconds."""
    kind = type(case.model(meta=True))
    before, start = _reset_peak(), time.monotonic()
    model = kind.from_pretrained(folder)
    sum(float(weight.detach().sum()) for weight in model.parameters())  # a mapped file is memory once it is read
    sizes = [weight.nbytes for weight in model.parameters()]
    megabytes = {"weights": round(sum(sizes) / 1e6), "largest": round(max(sizes) / 1e6), "peak": _peak() - before}
    return megabytes | {"s": time.monotonic() - start}


def measured_in_shards(case: Case, folder: str, degree: int) -> dict[str, Any]:
    """Megabytes of this rank's weights, and of the peak while they are loaded; seconds."""
    import torch.distributed as dist

    from tuneyard.parallel import load_sharded, shard_model

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    plan = plan_here(case, degree)
    model = case.model(meta=True)
    before, start = _reset_peak(), time.monotonic()
    shards = shard_model(model, plan, dist.group.WORLD)
    load_sharded(model, shards, folder)
    held = round(sum(weight.nbytes for weight in model.parameters()) / 1e6)
    found = {"peak": _peak() - before, "held": held, "s": time.monotonic() - start}
    dist.barrier()
    dist.destroy_process_group()
    return found


def _reset_peak() -> int:
    """Megabytes of this process's own memory now; its peak is counted from here on."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _peak() -> int:
    return _status("VmHWM")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return round(next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024 / 1e6)
