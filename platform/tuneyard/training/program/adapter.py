"""LoRA (Hu et al. 2021) in a program's model: PEFT's layers in place of its linears, and their weights added up at the end."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

import torch
from torch import nn
from transformers import set_seed

from tuneyard.api import BadInput
from tuneyard.api.train import ALL_LINEAR, Adapter
from tuneyard.parallel.modules import is_linear

_NAME = "default"


def add_lora(model: nn.Module, adapter: Adapter, seed: int, program: str) -> None:
    """Put low-rank factors on the linears that `adapter.targets` names, in place, and freeze everything else. Raises BadInput if no linear
    has such a name, or if a weight is used by other modules too.
    """
    from peft import LoraConfig, inject_adapter_in_model

    chosen = _chosen(model, adapter.targets, program)
    model.requires_grad_(False)
    set_seed(seed)  # every rank and every layout draws the same factors
    alpha = adapter.alpha if adapter.alpha is not None else 2 * adapter.rank
    inject_adapter_in_model(LoraConfig(r=adapter.rank, lora_alpha=alpha, lora_dropout=adapter.dropout, target_modules=chosen), model, _NAME)
    for name, weight in model.named_parameters():
        weight.requires_grad_(".lora_" in name)


def _chosen(model: nn.Module, targets: str | list[str], program: str) -> list[str]:
    """Names of linears, by PEFT's reading of `targets`: all-linear, a regular expression of whole names, or ends of names. all-linear
    leaves out linears whose weight has other users.
    """
    users = Counter(id(weight) for _, weight in model.named_parameters(remove_duplicate=False))
    linears = {name: users[id(module.weight)] == 1 for name, module in model.named_modules() if is_linear(module)}
    if targets == ALL_LINEAR:
        chosen, unknown = [name for name, alone in linears.items() if alone], []
    elif isinstance(targets, str):
        chosen = [name for name in linears if re.fullmatch(targets, name)]
        unknown = [] if chosen else [targets]
    else:
        chosen = [name for name in linears if any(f".{name}".endswith(f".{end}") for end in targets)]
        unknown = [end for end in targets if not any(f".{name}".endswith(f".{end}") for name in linears)]
    if unknown or not chosen:
        raise BadInput(
            f"the model of {program} has no linears {' '.join(['named', *unknown]) if unknown else ''} for an adapter".replace("  ", " "),
            f"name some of {', '.join([*linears][:5])}" if linears else "train it with method: {full: {}}",
        )
    tied = next((name for name in chosen if not linears[name]), None)
    if tied is not None:
        raise BadInput(f"the weight of {tied} is that of another module too, and an adapter would change one of them", "leave it out")
    return chosen


def merged(model: nn.Module, weights: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """The weights of the program's own model: W + alpha / rank * B A for each adapted linear, with the names that it had before `add_lora`.
    `weights`: whole weights by name, each after `prefix`.
    """
    from peft.tuners.lora import Linear

    found = {name: weights[f"{prefix}{name}"] for name in model.state_dict()}
    for path, module in model.named_modules():
        if not isinstance(module, Linear):
            continue
        up, down = (found.pop(f"{path}.lora_{side}.{_NAME}.weight") for side in "BA")
        whole = found.pop(f"{path}.base_layer.weight")
        found[f"{path}.weight"] = (whole.double() + module.scaling[_NAME] * (up.double() @ down.double())).to(whole.dtype)
        if f"{path}.base_layer.bias" in found:
            found[f"{path}.bias"] = found.pop(f"{path}.base_layer.bias")
    return found
