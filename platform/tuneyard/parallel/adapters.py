"""Names of the modules of a planned model after PEFT has wrapped them, and the styles of LoRA's own two linears.

`y = W x + B A x`. With W by columns, A is whole, B is cut by rows like W, and the gradient of A's small result is summed. With W by rows, A
is cut by columns like W, its small result is summed, and B is whole. With other styles A and B are whole, like W's inputs and results.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

from torch import nn

from tuneyard.api import BadInput
from tuneyard.parallel.modules import pattern
from tuneyard.parallel.shares import base_style

_OF_A = ("rowwise", "replicated_with_grad_allreduce")
_OF_B = ("colwise", "packed_colwise", "replicated_with_grad_allreduce")
"""Styles of a layer that are those of LoRA's A, and of B, too."""
_CUT = (
    *("colwise", "packed_colwise", "colwise_gather_output", "rowwise", "rowwise_split_input"),
    *("embedding_rowwise", "embedding_colwise", "moe_tp_experts"),
)
_AROUND = ("mla_kv_a_proj",)
"""Styles that change only a module's result: they belong around the adapter's sum."""
_WRAPPERS = re.compile(r"\.(?:base_layer|original_module|modules_to_save\.[^.]+)(?=\.|$)")
"""What PEFT adds to the name of a module that it wraps, whatever the name of the adapter is."""
_PACKED_WEIGHTS = ("Params4bit", "Int8Params")


def planned_names(model: nn.Module) -> dict[str, str]:
    """Name of each module -> its name in the model before PEFT; without LoRA's own modules."""
    prefix = "base_model.model." if _is_peft_model(model) else ""
    found = {}
    inside: list[str] = []
    for name, module in model.named_modules():
        if any(name.startswith(f"{outer}.") for outer in inside):
            continue
        if prefix and not f"{name}.".startswith(prefix):
            continue
        own = f"{name}.".removeprefix(prefix).removesuffix(".")
        found[name] = _WRAPPERS.sub("", own)
        if _kind(module) is not None:
            inside += [f"{name}.{part}" for part in _own_parts(module)]
    return found


def joined(module: str, own: str) -> str:
    """The name of a parameter from that of its module, which is empty for the model itself."""
    return f"{module}.{own}" if module else own


def placed_styles(model: nn.Module, styles: Mapping[str, str]) -> dict[str, str]:
    """Name of each module with a style -> its style, including LoRA's modules.

    Raises:
        BadInput: a plan with names that the model lacks; weights or adapters that cannot be cut.
    """
    names = planned_names(model)
    _check_known(model, names, styles)
    found: dict[str, str] = {}
    for name, module in model.named_modules():
        style = styles.get(pattern(names[name])) if name in names else None
        if style is None:
            continue
        kind = _kind(module)
        if kind is None:
            if not _belongs_around(name, names, model, style):
                found[name] = style
                _check_weights(name, module, style)
        elif type(module).__name__ == "ParamWrapper":
            found |= _around_experts(name, module, styles.get(pattern(f"{names[name]}.{module.parameter_name}"), ""))
        elif kind == "lora":
            found |= _around(name, module, style)
    return found


def _check_known(model: nn.Module, names: Mapping[str, str], styles: Mapping[str, str]) -> None:
    known = {pattern(own) for own in names.values()}
    known |= {
        pattern(joined(own, parameter))
        for name, own in names.items()
        for parameter, _ in model.get_submodule(name).named_parameters(recurse=False)
    }
    if lacking := sorted(set(styles) - known):
        raise BadInput(
            f"the plan is that of another model: {type(model).__name__} has no {', '.join(lacking[:3])}",
            "make the plan from this model with tensor_parallel_plan",
        )


def _around(name: str, module: Any, style: str) -> dict[str, str]:
    """Styles of a module that LoRA wraps: those of the wrapper, and of A and B of each adapter."""
    if base_style(style) in _CUT and module.lora_magnitude_vector:
        raise BadInput(f"DoRA norms whole weights, and those of {name} are cut", "use lora in place of dora, or set tensorParallel to 1")
    if style == "embedding_colwise":
        raise BadInput(f"{name} is cut by its features, and LoRA on it would be whole", "leave it out of the adapter's targets")
    found = {name: style} if style in _AROUND else {}
    if style in _OF_A:
        found |= {f"{name}.lora_A.{adapter}": style for adapter in module.lora_A}
    if base_style(style) in _OF_B:
        found |= {f"{name}.lora_B.{adapter}": style for adapter in module.lora_B}
    return found


def _around_experts(name: str, module: Any, style: str) -> dict[str, str]:
    """Styles of LoRA on a weight of experts, [experts, …, …]: one factor is cut like the weight, and the gradient of the other is
    summed.
    """
    if not style:
        return {}
    inputs_last = module._did_swap_in_out_features
    cuts_outputs = style.endswith("colwise") is inputs_last
    cut, whole = ("lora_B", "lora_A") if cuts_outputs else ("lora_A", "lora_B")
    of_factor = ("packed_" if style.startswith("packed") else "") + ("colwise" if cuts_outputs else "rowwise")
    found = {name: f"factors_of_experts:{whole}"}
    return found | {f"{name}.{cut}.{adapter}": of_factor for adapter in getattr(module, cut)}


def _belongs_around(name: str, names: Mapping[str, str], model: nn.Module, style: str) -> bool:
    """Whether the style of a base layer applies to the adapter around it."""
    outer = name.rpartition(".")[0]
    return style in _AROUND and names.get(outer) == names[name] and _kind(model.get_submodule(outer)) == "lora"


def _check_weights(name: str, module: nn.Module, style: str) -> None:
    for own, weight in module.named_parameters(recurse=False):
        if base_style(style) in _CUT and type(weight).__name__ in _PACKED_WEIGHTS:
            raise BadInput(
                f"{name}.{own} is quantised, and its packed numbers cannot be cut",
                "use lora in place of qlora, or set tensorParallel to 1 and zero to 2",
            )


def _kind(module: nn.Module) -> str | None:
    """`lora`, `saved` (a trained copy of a module), or None for a module that is not PEFT's. Raises BadInput for other adapters."""
    if "peft" not in sys.modules:
        return None
    from peft.tuners.lora import LoraLayer
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils.other import AuxiliaryTrainingWrapper, ModulesToSaveWrapper

    if isinstance(module, LoraLayer):
        return "lora"
    if isinstance(module, ModulesToSaveWrapper):
        return "saved"
    if isinstance(module, BaseTunerLayer | AuxiliaryTrainingWrapper):
        raise BadInput(f"{type(module).__name__} is an adapter whose weights no style cuts", "use lora, or set tensorParallel to 1")
    return None


def _is_peft_model(model: nn.Module) -> bool:
    if "peft" not in sys.modules:
        return False
    from peft import PeftModel

    return isinstance(model, PeftModel)


def _own_parts(module: nn.Module) -> list[str]:
    """Children of a LoRA layer other than the layer it adapts."""
    return [name for name, _ in module.named_children() if name not in ("base_layer", "original_module", "modules_to_save")]
