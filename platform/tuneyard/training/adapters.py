"""LoRA, QLoRA and DoRA by PEFT: a new adapter on the model, or an existing one to continue with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformers import set_seed

from tuneyard.api import BadInput
from tuneyard.training.adapter_reach import out_of_reach, refuse_lost_weights, refuse_shared_weights, refuse_unread_head
from tuneyard.training.continued_adapter import continued_config
from tuneyard.training.request import TrainRequest

REFERENCE = "reference"
"""PEFT's name of the frozen copy of an adapter that preference pairs are compared with."""


def with_adapter(model: Any, request: TrainRequest, adapter_folder: str | None, warn: Callable[[str], None]) -> Any:
    """`model` with the task's adapter, and everything else frozen; for full training, the model itself. `warn` gets what people should know
    about an adapter that is continued.
    """
    if request.task.method.adapter is None:
        return model
    from peft import PeftModel, get_peft_model

    set_seed(request.task.seed)  # every rank and every layout draws the same A
    # DeepSpeed keeps fp32 masters itself, and ZeRO-3 gathers all weights in one dtype (deepspeedai/DeepSpeed#8072).
    keep_fp32 = request.plan.zero == 0
    try:
        if adapter_folder is not None:
            config = continued_config(adapter_folder, request, model, warn)
            adapted = PeftModel.from_pretrained(model, adapter_folder, is_trainable=True, config=config, autocast_adapter_dtype=keep_fp32)
            if request.task.objective == "dpo":
                adapted.load_adapter(adapter_folder, REFERENCE, autocast_adapter_dtype=keep_fp32)
        else:
            adapted = get_peft_model(model, _lora_config(request, model), autocast_adapter_dtype=keep_fp32)
            if request.plan.zero < 3:  # each rank has only a part of each weight
                refuse_lost_weights(adapted)
        if request.plan.liger:
            refuse_unread_head(adapted)
        if request.task.method.adapter.merge:
            refuse_shared_weights(adapted)
    except ValueError as error:
        raise BadInput(
            f"the adapter does not fit the model: {error}", "check method targets: all-linear, or names of the model's modules"
        ) from error
    # With this path the adapter can be loaded anywhere, not only beside this attempt's scratch.
    adapted.peft_config["default"].base_model_name_or_path = request.model_uri
    adapted.peft_config["default"].revision = request.task.model.revision
    if request.plan.recompute:
        # Outputs of frozen embeddings have no gradient, so backward would skip recomputed blocks.
        adapted.enable_input_require_grads()
    return adapted


def _lora_config(request: TrainRequest, model: Any) -> Any:
    from peft import LoraConfig

    method = request.task.method
    settings = method.adapter
    assert settings is not None
    if settings.rank < 1:
        raise BadInput(f"an adapter of rank {settings.rank} has no weights", "set the rank to at least 1; 8 to 64 are usual")
    return LoraConfig(
        task_type="CAUSAL_LM",
        r=settings.rank,
        lora_alpha=settings.alpha if settings.alpha is not None else 2 * settings.rank,
        lora_dropout=settings.dropout,
        target_modules=settings.targets,
        exclude_modules=out_of_reach(model, settings.targets) or None,
        modules_to_save=settings.save_modules or None,
        use_dora=method.dora is not None,
    )
