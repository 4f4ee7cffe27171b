"""transformers' TrainingArguments of a task and its plan. No other module translates between the two."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from transformers import TrainingArguments

from tuneyard.api import TrainTask
from tuneyard.planning import Plan
from tuneyard.training.bf16_states import Bf16AdamW
from tuneyard.training.deepspeed_config import deepspeed_config

OPTIMIZERS = {"adamw": "adamw_torch", "adamw-8bit": "adamw_bnb_8bit", "adafactor": "adafactor", "sgd": "sgd"}
FUSED_ADAMW = "adamw_torch_fused"
SCHEDULES = {
    "cosine": "cosine",
    "linear": "linear",
    "constant": "constant_with_warmup",
    "inverse-sqrt": "inverse_sqrt",
    "wsd": "warmup_stable_decay",
}
WSD_DECAY_SHARE = 0.1
GPU_LOADER_WORKERS = 2


def argument_values(task: TrainTask, plan: Plan, *, steps: int, scratch: Path, largest_parameter: int = 0) -> dict[str, Any]:
    """Keyword arguments of TrainingArguments. Logging, saving and evaluation are Tuneyard's.

    `largest_parameter`: see `deepspeed_config`.
    """
    on_gpu = plan.sku != "cpu"
    return {
        "output_dir": str(scratch / "trainer"),
        "max_steps": steps,
        "per_device_train_batch_size": plan.micro_batch,
        "per_device_eval_batch_size": plan.micro_batch,
        "gradient_accumulation_steps": plan.grad_accum,
        **_optimization(task, plan, steps),
        "bf16": plan.precision == "bf16",
        "fp16": plan.precision == "fp16",
        # What stays in fp32 beside bf16 matmuls (routers, fp32 heads). GPUs with bf16 have TF32.
        "tf32": True if on_gpu and plan.precision == "bf16" else None,
        "use_cpu": not on_gpu,
        "seed": task.seed,
        "deepspeed": deepspeed_config(plan, max_grad_norm=task.optimizer.max_grad_norm, largest_parameter=largest_parameter),
        "gradient_checkpointing": plan.recompute,
        # Reentrant recomputation cuts off the gradient of what leaves a block beside its output: router logits, shared keys and values.
        "gradient_checkpointing_kwargs": {"use_reentrant": False} if plan.recompute else None,
        "use_liger_kernel": plan.liger,
        "ddp_find_unused_parameters": False,
        "average_tokens_across_devices": True,
        "dataloader_num_workers": GPU_LOADER_WORKERS if on_gpu else 0,
        "remove_unused_columns": False,
        # Each batch follows from its step, so nothing is skipped on resume.
        "ignore_data_skip": True,
        "logging_strategy": "no",
        "save_strategy": "no",
        "eval_strategy": "no",
        # The filter reads each loss back from the GPU and hides NaN; nan_guard stops the run instead.
        "logging_nan_inf_filter": False,
        "report_to": "none",
        "disable_tqdm": True,
    }


def training_arguments(task: TrainTask, plan: Plan, *, steps: int, scratch: Path, largest_parameter: int = 0) -> TrainingArguments:
    """TrainingArguments. They must exist before the model: with ZeRO-3 they make transformers partition weights during loading."""
    return TrainingArguments(**argument_values(task, plan, steps=steps, scratch=scratch, largest_parameter=largest_parameter))


def optimizer_of(task: TrainTask) -> tuple[type[torch.optim.Optimizer], dict[str, Any]] | None:
    """Class and settings of an optimizer that transformers does not have; None for those in `OPTIMIZERS`."""
    settings = task.optimizer
    if settings.states == "fp32":
        return None
    names = {"lr": settings.learning_rate, "betas": settings.betas, "eps": settings.epsilon, "weight_decay": settings.weight_decay}
    return Bf16AdamW, {**names, "seed": task.seed}


def fused_adamw(optimizer: str, plan: Plan) -> bool:
    """Whether AdamW steps in one kernel: on GPUs, unless DeepSpeed's CPU Adam takes its place."""
    return optimizer == "adamw" and plan.sku != "cpu" and plan.offload_optimizer == "none"


def warmup_steps(warmup: float, steps: int) -> int:
    """Steps of warm-up. Below 1, `warmup` is a share of all steps, rounded up; from 1 on, steps. Never more than the run has."""
    return min(steps, math.ceil(warmup * steps) if warmup < 1 else int(warmup))


def _optimization(task: TrainTask, plan: Plan, steps: int) -> dict[str, Any]:
    optimizer = task.optimizer
    decay = max(1, round(WSD_DECAY_SHARE * steps))
    return {
        "optim": FUSED_ADAMW if fused_adamw(optimizer.name, plan) else OPTIMIZERS[optimizer.name],
        "learning_rate": optimizer.learning_rate,
        "weight_decay": optimizer.weight_decay,
        "adam_beta1": optimizer.betas[0],
        "adam_beta2": optimizer.betas[1],
        "adam_epsilon": optimizer.epsilon,
        "max_grad_norm": optimizer.max_grad_norm,
        "lr_scheduler_type": SCHEDULES[optimizer.schedule],
        "lr_scheduler_kwargs": {"num_decay_steps": decay, "decay_type": "linear"} if optimizer.schedule == "wsd" else None,
        "warmup_steps": warmup_steps(optimizer.warmup, steps),
    }
