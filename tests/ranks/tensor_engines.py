"""Engines of tensor parallelism on the same tiny models: 20 steps of AdamW with two micro-batches each, beside one process."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from tests.ranks.applied_models import Case, batch_of, difference_here, plan_here
from tests.ranks.forks import Call, called
from tests.ranks.groups import group
from tests.ranks.sharded_models import ROWS

STEPS, MICRO_BATCHES, LEARNING_RATE = 20, 2, 1e-3
LOGITS, GRADIENT, LOSS = 1e-5, 1e-5, 1e-4
EQUAL, GRADIENTS_EQUAL = "equal", "gradients equal"


@dataclass(frozen=True)
class Ran:
    """How an engine did on one case: *equal*, or the difference, or the error; `share` of the parameters that are cut."""

    verdict: str
    trains: bool = False
    share: float = 0.0
    logits: float = 0.0
    gradient: float = 0.0


Engine = Callable[[Case, int, Sequence[float]], Ran]


def one_process(cases: list[Case]) -> list[list[float]]:
    """The losses of each case without any parallelism, in a process of its own."""
    found: list[list[float]] = called([Call(_alone, (cases,))])[0]
    return found


def in_ranks(engine: Engine, cases: list[Case], expected: list[list[float]], degree: int) -> list[Ran]:
    """An engine on each case. A group that ends without an answer is followed by a group for each of its cases."""
    calls = [Call(_rank, (engine, cases, expected, degree), place) for place in group(degree, per_machine=degree)]
    try:
        found: list[Ran] = called(calls, timeout_s=60 + 30 * len(cases))[0]
        return found
    except RuntimeError as error:
        if len(cases) == 1:
            return [Ran(f"fails: {_last_error(str(error))}")]
        return [ran for case, losses in zip(cases, expected, strict=True) for ran in in_ranks(engine, [case], [losses], degree)]


def _last_error(text: str) -> str:
    lines = [line for line in text.splitlines() if re.match(r"[\w.]*(Error|Exception|BadInput)\b", line)]
    return (lines[0] if lines else "a rank ended without a word")[:160]


def _alone(cases: list[Case]) -> list[list[float]]:
    torch.set_num_threads(1)
    return [losses_of(case.trained()) for case in cases]


def _rank(engine: Engine, cases: list[Case], expected: list[list[float]], degree: int) -> list[Ran]:
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    found = [engine(case, degree, losses) for case, losses in zip(cases, expected, strict=True)]
    dist.destroy_process_group()
    return found


def ours(case: Case, degree: int, expected: Sequence[float]) -> Ran:
    """Tuneyard's plan and engine."""
    import torch.distributed as dist

    from tuneyard.parallel import shard_model

    first = difference_here(case, degree)
    plan = plan_here(case, degree)
    model = case.trained()
    shard_model(model, plan, dist.group.WORLD)
    ran = replace(judged(losses_of(model), expected), share=plan.sharded_share, logits=first.logits, gradient=first.gradient)
    if ran.verdict == EQUAL and (first.logits > LOGITS or first.gradient > GRADIENT):
        return replace(ran, verdict=f"wrong: logits {first.logits:.0e}, gradient {first.gradient:.0e} ({first.worst})")
    return ran


def first_pass_of_ours(case: Case, degree: int, expected: Sequence[float]) -> Ran:  # noqa: ARG001  no step is taken
    """Tuneyard's plan and engine: logits and gradients alone."""
    first, share = difference_here(case, degree), plan_here(case, degree).sharded_share
    close = first.logits <= LOGITS and first.gradient <= GRADIENT
    words = f"wrong: logits {first.logits:.0e}, gradient {first.gradient:.0e} ({first.worst})"
    return Ran(GRADIENTS_EQUAL if close else words, share=share, logits=first.logits, gradient=first.gradient)


def by_transformers(case: Case, degree: int, expected: Sequence[float]) -> Ran:
    """A hand-written plan by the engine of transformers."""
    from torch.distributed.device_mesh import init_device_mesh
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    model = case.model()
    plan = dict(getattr(model, "tp_plan", None) or {})
    if not plan:
        return Ran("no plan")
    apply_tensor_parallelism(model, init_device_mesh("cpu", (degree,)), plan)
    model.tie_weights()
    return judged(losses_of(model, foreach=False), expected)  # which takes plain tensors beside DTensors


def by_deepspeed(case: Case, degree: int, expected: Sequence[float]) -> Ran:
    """DeepSpeed's AutoTP. It has state of its own: one case in a process."""
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # it would be compiled first
    deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, verbose=False)
    settings = {
        "train_micro_batch_size_per_gpu": ROWS,
        "gradient_accumulation_steps": MICRO_BATCHES,
        "tensor_parallel": {"autotp_size": degree},
        "zero_optimization": {"stage": 0},
        "gradient_clipping": 0.0,
    }
    model = case.model().eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    engine, *_ = deepspeed.initialize(model=model, config=settings, optimizer=optimizer)
    losses = []
    for step in range(STEPS):
        total = 0.0
        for number in range(MICRO_BATCHES):
            loss = training_loss(engine, step * MICRO_BATCHES + number)
            engine.backward(loss)
            engine.step()
            total += float(loss.detach()) / MICRO_BATCHES
        losses.append(total)
    return judged(losses, expected)


def judged(losses: Sequence[float], expected: Sequence[float]) -> Ran:
    """A verdict on the losses of each step."""
    apart = [abs(one - other) / max(1.0, abs(other)) for one, other in zip(losses, expected, strict=True)]
    if max(apart) <= LOSS:
        return Ran(EQUAL, trains=True)
    first = next(step for step, found in enumerate(apart, 1) if not found <= LOSS)
    return Ran(f"wrong: losses {max(apart):.0e} apart, from step {first} on", trains=True)


def losses_of(model: Any, **settings: Any) -> list[float]:
    """The mean loss of each step; dropout is off, since shards draw other numbers than the whole."""
    model.eval()
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=LEARNING_RATE, weight_decay=0.01, **settings)
    losses = []
    for step in range(STEPS):
        total = 0.0
        for number in range(MICRO_BATCHES):
            loss = training_loss(model, step * MICRO_BATCHES + number)
            (loss / MICRO_BATCHES).backward()
            total += float(loss.detach()) / MICRO_BATCHES
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    return losses


def training_loss(model: Any, number: int) -> torch.Tensor:
    """The model's own loss on batch `number`, or one on its last hidden states where it has none."""
    inner = getattr(model, "module", model)
    batch = batch_of(inner, number)
    if _has_loss(inner):
        answer = model(**batch, labels=batch["input_ids"])
        loss: torch.Tensor = answer["loss"]
        return loss
    answer = model(**batch)
    states = answer["logits"] if "logits" in answer else answer["last_hidden_state"]
    labels = batch["input_ids"].flatten() % states.shape[-1]
    return torch.nn.functional.cross_entropy(states.flatten(0, 1).float(), labels)


def _has_loss(model: Any) -> bool:
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return "labels" in inspect.signature(type(base).forward).parameters
