"""Folders of tiny models loaded in shards by real ranks, beside `from_pretrained`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tests.applied_models import Case, batch_of, plan_here
from tests.forks import Call, called
from tests.ranks import group


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
