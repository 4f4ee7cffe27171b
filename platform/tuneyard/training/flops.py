"""Model FLOPs of a step of this task, from the catalog, to turn tokens/s into MFU."""

from __future__ import annotations

import json
from typing import Any

from tuneyard.api import TrainTask
from tuneyard.catalog import forward_flops, gpu, train_flops
from tuneyard.catalog.built import model_shape_of
from tuneyard.planning import Plan
from tuneyard.training.throughput import FlopsOf


def flops_of(task: TrainTask, config: Any) -> FlopsOf:
    """FLOPs of forward and backward over `tokens` real tokens, whose samples have `mean_length` tokens (averaged over tokens).

    Padding is not work. Attention counts all pairs of tokens in a sample, as PaLM does. DPO adds the reference's forward pass.

    Raises BadInput for adapter targets that the model's family does not have.
    """
    shape = model_shape_of(json.loads(config.to_json_string()))

    def of(tokens: float, mean_length: float) -> float:
        length = max(1, round(mean_length))
        work = train_flops(shape, tokens=round(tokens), seq_len=length, method=task.method).model
        if task.objective == "dpo":
            samples = max(1, round(tokens / length))
            work += forward_flops(shape, prompt_lengths=[length] * samples, output_lengths=[0] * samples, prompt_logits=True)
        return work

    of(1, 1)  # refuses unknown names before the first step
    return of


def peak_flops(plan: Plan, ranks_on_machine: int) -> float:
    """Peak FLOP/s of the plan's workers together at its precision, without sparsity. Ranks on cpu share their machine."""
    return plan.workers * gpu(plan.sku).rank_peak_flops(plan.precision, ranks_on_machine)
