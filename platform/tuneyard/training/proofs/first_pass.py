"""Errors of libraries in the first passes of a model, told as what they are: a class that does not compute in this dtype and layout."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from tuneyard.api import BadInput, TuneyardError
from tuneyard.planning import Plan
from tuneyard.training.lost_peer import is_collateral
from tuneyard.training.memory import is_out_of_memory
from tuneyard.training.program.blame import said

_OF_THE_MACHINE = re.compile(r"(CUDA|HIP|NCCL|RCCL) error|CU(BLAS|DNN|SOLVER)_STATUS|ncclResult|device-side assert")


@contextmanager
def first_pass(model: Any, plan: Plan) -> Iterator[None]:
    """Raises BadInput, with the library's own words, for errors of the passes inside.

    Errors that say nothing of the model pass unchanged: Tuneyard's own, those of memory, of compilation, of files, of a GPU, and of a rank
    that lost a peer.
    """
    try:
        yield
    except TuneyardError:
        raise
    except Exception as error:
        if _has_words_of_its_own(error):
            raise
        bare = model.get_base_model() if hasattr(model, "get_base_model") else model
        raise BadInput(
            f"{type(bare).__name__} does not compute {layout_words(plan)}: {said(error)}",
            f"{_remedy(plan)}; if it stays, report this with the versions of the packages",
        ) from error


def layout_words(plan: Plan) -> str:
    """Dtype and layout, in the order in which they are likely to be the cause."""
    zero = f"under ZeRO {plan.zero}" if plan.zero else "without DeepSpeed"
    parts = {
        f"tensorParallel {plan.tensor_parallel}": plan.tensor_parallel > 1,
        "sequenceParallel": plan.sequence_parallel,
        f"contextParallel {plan.context_parallel}": plan.context_parallel > 1,
        "recomputation": plan.recompute,
        "Liger kernels": plan.liger,
    }
    others = ", ".join(name for name, is_there in parts.items() if is_there)
    return f"in {plan.precision} {zero}, with {plan.attention} attention{f', {others}' if others else ''}"


def _remedy(plan: Plan) -> str:
    tries = {
        "strategy.precision to fp32": plan.precision != "fp32",
        "strategy.zero to 2": plan.zero == 3,
        "strategy.zero to 1": plan.zero == 0 and plan.precision != "fp32",
        "strategy.tensorParallel to 1": plan.tensor_parallel > 1,
        "strategy.contextParallel to 1": plan.context_parallel > 1,
        "strategy.recompute to false": plan.recompute,
        "strategy.liger to false": plan.liger,
    }
    found = [change for change, is_there in tries.items() if is_there]
    return f"set {', or '.join(found)}" if found else "set batch.micro to 1, another data.maxLength, or train another model"


def _has_words_of_its_own(error: Exception) -> bool:
    if isinstance(error, OSError) or type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
        return True
    of_the_machine = isinstance(error, torch.AcceleratorError) or _OF_THE_MACHINE.search(str(error)) is not None
    return of_the_machine or is_out_of_memory(error) or is_collateral(str(error))
