"""Matrices that an adapter cannot reach.

- State-space layers pass weights to a kernel instead of calling the module: LoRA beside the module would have no effect.
- Jamba's router is recorded from inside the module, where LoRA has matrices of its own.
- DeepSeek-V4 multiplies in groups, in a subclass of Linear.
- PEFT cannot load the adapters of Laguna's shared experts that it has saved.

Source: the modules of transformers 5.19, by a test. PEFT refuses some of them, by a list of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from tuneyard.api import BadInput

_READ_PAST = {
    **dict.fromkeys(("mamba", "falcon_mamba"), ("dt_proj", "out_proj", "x_proj")),
    **dict.fromkeys(("mamba2", "bamba", "falcon_h1", "granitemoehybrid", "nemotron_h", "zamba2"), ("out_proj",)),
    "jamba": ("dt_proj", "router"),
    "gemma3n_text": ("correction_coefs",),
    "longcat_flash": ("router.classifier",),
    "laguna": ("shared_experts.gate_proj", "shared_experts.up_proj", "shared_experts.down_proj"),
}


def out_of_reach(model: Any, targets: str | Sequence[str]) -> list[str]:
    """Names of modules to leave out of `targets` (of the JobSpec). all-linear leaves out those of the model. Raises BadInput if `targets`
    names one.
    """
    if model.config.model_type == "reformer":
        raise BadInput("the reversible layers of a reformer model pass no gradients to adapters", "train all its weights: method.full")
    beyond = {*_READ_PAST.get(model.config.model_type, ()), *_own_products(model)}
    if targets == "all-linear":
        return sorted(beyond)
    named = sorted({target.rsplit(".", 1)[-1] for target in ([targets] if isinstance(targets, str) else targets)} & beyond)
    if named:
        raise BadInput(
            f"LoRA cannot adapt {', '.join(named)} of a {model.config.model_type} model: its layers use these weights past the module",
            f"take {', '.join(named)} out of targets, or use all-linear, which leaves them out",
        )
    return []


def refuse_lost_weights(adapted: Any) -> None:
    """Raises BadInput if PEFT would not load some weights of the saved adapter: it leaves them at their initial values, with a warning."""
    from peft import get_peft_model_state_dict, set_peft_model_state_dict

    loaded = set_peft_model_state_dict(adapted, get_peft_model_state_dict(adapted, save_embedding_layers=False))
    trained = {name for name, weight in adapted.named_parameters() if weight.requires_grad}
    lost = sorted({name.split(".lora_")[0].rsplit("layers.", 1)[-1].split(".", 1)[-1] for name in trained & set(loaded.missing_keys)})
    if lost:
        raise BadInput(
            f"PEFT would not find the adapter of {', '.join(lost[:4])} again once it is saved",
            "name targets without these: the projections of attention, or set targets to all-linear",
        )


def refuse_shared_weights(adapted: Any) -> None:
    """Raises BadInput for adapters that no merge can take: layers share a weight and each has its own adapter (Zamba), or the head has one
    and is tied to the embedding, which would change with it.
    """
    layers = [module.base_layer for module in adapted.modules() if isinstance(getattr(module, "base_layer", None), nn.Linear)]
    weights = [layer.weight for layer in layers]
    embeddings = {id(module.weight) for module in adapted.modules() if isinstance(module, nn.Embedding)}
    if any(id(weight) in embeddings for weight in weights):
        raise BadInput(
            "the adapter of the head cannot be merged: this model ties the head to its embedding, which would change too",
            "set merge to false, or train the head whole: saveModules instead of targets",
        )
    if len({id(weight) for weight in weights}) < len(weights):
        raise BadInput(
            "the adapter cannot be merged: layers of this model share weights, and each layer has its own adapter",
            "set merge to false, and use the adapter beside its model",
        )


def refuse_unread_head(adapted: Any) -> None:
    """Raises BadInput if an adapter adapts the head, for a run with Liger: its fused loss reads the head's own weight past the adapter."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    if isinstance(adapted.get_base_model().get_output_embeddings(), BaseTunerLayer):
        raise BadInput(
            "the adapter adapts lm_head, which Liger's fused loss would not train: it reads the head's own weight past the adapter",
            "set strategy.liger to false",
        )


def _own_products(model: Any) -> set[str]:
    """Names of modules of an architecture's own Linear subclass that does not compute a plain product."""
    return {
        name.rsplit(".", 1)[-1]
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
        and type(module).forward is not nn.Linear.forward
        and type(module).__module__.startswith(("transformers.models.", "transformers_modules."))
        and not _multiplies(type(module))
    }


def _multiplies(kind: type[nn.Linear]) -> bool:
    """Whether a class computes what Linear computes, as Falcon's does in other code. A small instance is tested."""
    try:
        small = kind(3, 2)
        inputs = torch.ones(1, 2, 3)
        with torch.no_grad():
            return bool(torch.allclose(small(inputs), nn.functional.linear(inputs, small.weight, small.bias), atol=1e-5))
    except (TypeError, ValueError, RuntimeError, AttributeError):  # the class needs more than two widths, or other inputs
        return False
