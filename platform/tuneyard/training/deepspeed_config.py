"""The DeepSpeed configuration of a plan, as a pure function.

Batch sizes, clipping and precision must agree with the TrainingArguments of the same plan: transformers checks that they do.
"""

from __future__ import annotations

from typing import Any

from tuneyard.planning import SWAPPED_ELEMENTS, Plan

# Elements per bucket of a reduction. DeepSpeed's default of 5e8 would need 1 to 2 GB of buffers per rank, whatever the model.
BUCKET_ELEMENTS = 50_000_000
ADDED_TOKENS = 1 / 16
"""Share by which the embedding may grow after loading."""

EXCHANGED_ELEMENTS = 4_000_000
"""Elements per bucket if each bucket is next averaged across hosts: small enough that most of them are in flight during backward."""


def deepspeed_config(plan: Plan, *, max_grad_norm: float, largest_parameter: int = 0) -> dict[str, Any] | None:
    """Settings for `deepspeed.initialize`; None for ZeRO 0, which is plain data parallelism without DeepSpeed.

    `max_grad_norm` 0 means no clipping, in DeepSpeed too. `largest_parameter`: elements of the model's largest weight, which sets the size
    of the buffers for parameters on NVMe.
    """
    if plan.zero == 0:
        return None
    return {
        # transformers and accelerate count rows by ranks, also if several ranks read the same rows.
        "train_batch_size": plan.micro_batch * plan.grad_accum * plan.workers,
        "train_micro_batch_size_per_gpu": plan.micro_batch,
        "gradient_accumulation_steps": plan.grad_accum,
        "gradient_clipping": max_grad_norm,
        "bf16": {"enabled": plan.precision == "bf16"},
        "fp16": {"enabled": plan.precision == "fp16", "initial_scale_power": 16, "loss_scale_window": 1000},
        "zero_optimization": _zero(plan, largest_parameter),
        # The optimizer is ours (adamw, adafactor, sgd, 8-bit); DeepSpeed knows only some of them by name.
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": plan.offload_optimizer != "none",
        "wall_clock_breakdown": False,
        "steps_per_print": 10**9,
        **({"aio": _aio()} if "nvme" in (plan.offload_optimizer, plan.offload_parameters) else {}),
    }


def _zero(plan: Plan, largest_parameter: int) -> dict[str, Any]:
    zero: dict[str, Any] = {
        "stage": plan.zero,
        "overlap_comm": plan.sku != "cpu",
        "contiguous_gradients": True,
        "reduce_bucket_size": EXCHANGED_ELEMENTS if plan.shard_within == "host" else BUCKET_ELEMENTS,
        "allgather_bucket_size": BUCKET_ELEMENTS,
    }
    if plan.offload_optimizer != "none":
        zero["offload_optimizer"] = _offload(plan.offload_optimizer, plan.nvme_path)
        if plan.offload_optimizer == "nvme":
            zero["sub_group_size"] = SWAPPED_ELEMENTS
    if plan.zero == 3:
        if plan.offload_parameters != "none":
            zero["offload_param"] = _offload(plan.offload_parameters, plan.nvme_path)
            if plan.offload_parameters == "nvme":
                # DeepSpeed would keep the first 1e9 parameters of a rank in memory, and refuse a part of more than 1e8 elements.
                largest = int(largest_parameter * (1 + ADDED_TOKENS))
                zero["offload_param"] |= {"max_in_cpu": 0, "buffer_size": largest // plan.data_parallel + 1}
        # Without this setting, a bf16 model is silently saved without weights.
        zero["stage3_gather_16bit_weights_on_model_save"] = True
        zero["stage3_prefetch_bucket_size"] = BUCKET_ELEMENTS
        if plan.offload_parameters == "nvme":
            # A gathered weight holds one of five buffers, and DeepSpeed fails if none is left: gather none ahead, and keep none.
            zero |= {"stage3_prefetch_bucket_size": 0, "stage3_max_reuse_distance": 0, "stage3_max_live_parameters": 0}
    return zero


def _offload(target: str, nvme_path: str) -> dict[str, Any]:
    if target == "nvme":
        return {"device": "nvme", "nvme_path": nvme_path, "pin_memory": True}
    return {"device": "cpu", "pin_memory": True}


def _aio() -> dict[str, Any]:
    return {"block_size": 1 << 20, "queue_depth": 8, "thread_count": 1, "single_submit": False, "overlap_events": True}
