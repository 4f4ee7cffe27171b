"""What people write between two linears, one by one and at random: the plan pairs it and is right, or leaves it alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from tests.builders.random_models import BETWEEN, Random, random_inputs, random_model
from tests.ranks.forks import Call, called
from tests.ranks.groups import group, made_on_first
from tests.zoo.proofs import proven_once
from torch import Tensor

RANDOM = 40
PAIRS = {"rowwise", "packed_rowwise"}


@dataclass(frozen=True)
class Outcome:
    """`worst`: the largest difference from one process, of the output or a gradient, relative to the largest value."""

    key: Any
    styles: dict[str, str]
    worst: float
    of: str


@proven_once
def test_no_plan_gives_a_wrong_number() -> None:
    keys = [*((1, [name]) for name in BETWEEN), *((seed, None) for seed in range(RANDOM))]

    found: list[Outcome] = called([Call(_ranks, (keys,), place) for place in group(2, per_machine=2)])[0]

    assert [outcome for outcome in found if not outcome.worst < 1e-9] == []
    paired = Counter(bool(PAIRS & set(outcome.styles.values())) for outcome in found)
    assert paired[True] > 35  # the proof was tried, not only given up


def _ranks(keys: list[tuple[int, list[str] | None]]) -> list[Outcome]:
    import torch.distributed as dist

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    dist.init_process_group("gloo")
    found = [outcome for key in keys if (outcome := _outcome(*key)) is not None]
    dist.destroy_process_group()
    return found


def _outcome(seed: int, names: list[str] | None) -> Outcome | None:
    import torch.distributed as dist

    from tuneyard.parallel import explain_tensor_parallel, shard_model

    inputs = random_inputs(seed)
    try:
        expected = _run(random_model(seed, names), inputs)
    except RuntimeError:  # in-place operations at random, which autograd refuses
        return None
    with torch.device("meta"):
        blank = random_model(seed, names)
    plan = made_on_first(lambda: explain_tensor_parallel(blank, 2, inputs={name: value.to("meta") for name, value in inputs.items()}))
    model = random_model(seed, names)
    shards = shard_model(model, plan, dist.group.WORLD)
    found = _run(model, inputs)
    floor = 1e-6 * max(float(value.abs().max()) for value in expected.values())  # below that, a gradient that vanishes is rounding
    whole = {name: value if name == "" else shards.gather(name, value) for name, value in found.items()}
    off = {name: float((whole[name] - value).abs().max() / value.abs().max().clamp(min=floor)) for name, value in expected.items()}
    worst = max(off, key=lambda name: off[name])
    return Outcome((seed, names), plan.styles, off[worst], worst)


def _run(model: Random, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The output, under no name, and the gradient of each parameter."""
    output = model(**inputs)
    (output * torch.linspace(-1, 1, output.numel()).view(output.shape)).sum().backward()
    return {"": output.detach(), **{name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}}
