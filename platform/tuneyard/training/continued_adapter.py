"""An adapter that a task continues: its own settings beside those that the task asks for.

An adapter has its rank, alpha and modules already. A task that was written with others is refused: PEFT would overlook them. Settings that
the task leaves out are the adapter's; a warning says which these are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tuneyard.api import BadInput
from tuneyard.api.resuming import scale_of
from tuneyard.api.train import Adapter
from tuneyard.storage import open_store
from tuneyard.training.adapter_reach import out_of_reach
from tuneyard.training.origin import ORIGIN
from tuneyard.training.request import TrainRequest

_SHOWN = 6


@dataclass(frozen=True)
class _Field:
    """A setting of an adapter. `own`: its value in PEFT's configuration; `asked`: that of the task."""

    own: Callable[[Any, Any], Any]
    asked: Callable[[Adapter, Any], Any]
    may_change: bool = False


_FIELDS: Mapping[str, _Field] = {
    "rank": _Field(lambda config, _: config.r, lambda settings, _: settings.rank),
    "alpha": _Field(lambda config, _: float(config.lora_alpha), lambda settings, _: scale_of(settings)),
    "targets": _Field(lambda config, model: _reached(config, model), lambda settings, model: _asked_targets(settings, model)),
    "save_modules": _Field(lambda config, _: sorted(config.modules_to_save or []), lambda settings, _: sorted(settings.save_modules)),
    "dropout": _Field(lambda config, _: config.lora_dropout, lambda settings, _: settings.dropout, may_change=True),
}
"""By the names of the task's fields."""


def continued_config(folder: str, request: TrainRequest, model: Any, warn: Callable[[str], None]) -> Any:
    """PEFT's configuration of the adapter in `folder`, with the settings of the task that may change.

    Raises BadInput for settings of the task that the adapter does not have.
    """
    from peft import PeftConfig

    method, settings = request.task.method, request.task.method.adapter
    assert settings is not None
    config: Any = PeftConfig.from_pretrained(folder)
    _refuse_other_kind(config, request)
    refused, taken = list[str](), list[str]()
    for name in (name for name in _FIELDS if name in settings.model_fields_set):
        field = _FIELDS[name]
        own, asked = field.own(config, model), field.asked(settings, model)
        if own != asked:
            words = f"{_yaml(name)} {_shown(own)}, and the task asks for {_shown(asked)}"
            (taken if field.may_change else refused).append(words)
    if refused:
        raise BadInput(
            f"the adapter of {request.adapter_uri} has {'; '.join(refused)}",
            f"leave that out of method.{method.name} to continue the adapter as it is; for another adapter, start from this one's merged "
            "model (tuneyard merge)",
        )
    if "dropout" in settings.model_fields_set:
        config.lora_dropout = settings.dropout
    kept = [f"{_yaml(name)} {_shown(own)}" for name, own in _kept(config, settings)]
    if taken:
        warn(f"the adapter of {request.adapter_uri} has {'; '.join(taken)}, which counts from here on")
    if kept:
        warn(f"the adapter of {request.adapter_uri} keeps its own settings: {', '.join(kept)}")
    for message in (base_warning(config, request), _other_bits(request)):
        if message is not None:
            warn(message)
    return config


def _other_bits(request: TrainRequest) -> str | None:
    """The warning for an adapter whose base was rounded to 4 bits, and is not here, or the reverse; None where the adapter does not say."""
    store = open_store(request.adapter_uri or "")
    about = store.manifest("").extra.get(ORIGIN) if store.is_complete("") else None
    if about is None or bool(about.get("quantized")) == (request.task.method.qlora is not None):
        return None
    before, now = ("in 4 bits", "whole") if about.get("quantized") else ("whole", "in 4 bits")
    return f"the adapter of {request.adapter_uri} was trained on its base {before}, and the task takes the base {now}, with other logits"


def base_warning(config: Any, request: TrainRequest) -> str | None:
    """The warning for an adapter of another base model, by its name; None where it is the task's."""
    base = config.base_model_name_or_path
    if not base or base == request.model_uri:
        return None
    return f"the adapter of {request.adapter_uri} was trained on {base}, and the task adds it to {request.model_uri}"


def _refuse_other_kind(config: Any, request: TrainRequest) -> None:
    wanted = request.task.method.name
    kind = str(getattr(config.peft_type, "value", config.peft_type))
    if kind != "LORA":
        raise BadInput(
            f"the adapter of {request.adapter_uri} is of the kind {kind}, which Tuneyard does not train",
            "start from its base model; or merge it with PEFT first, and start from the merged model",
        )
    own = "dora" if config.use_dora else "lora"
    if config.use_dora != (wanted == "dora"):
        raise BadInput(
            f"the adapter of {request.adapter_uri} is a {own} adapter, and the task's method is {wanted}",
            f"set method to {own} to continue it; for {wanted}, merge it (tuneyard merge) and start from the merged model",
        )


def _kept(config: Any, settings: Adapter) -> list[tuple[str, Any]]:
    """Settings that the task leaves at defaults which are not the adapter's; modules are too many to list."""
    left = [name for name in ("rank", "alpha", "dropout") if name not in settings.model_fields_set]
    found = [(name, _FIELDS[name].own(config, None)) for name in left]
    return [(name, own) for name, own in found if own != _FIELDS[name].asked(settings, None)]


def _reached(config: Any, model: Any) -> list[str]:
    """Names of the modules that a configuration of PEFT adapts."""
    from peft.tuners.tuners_utils import check_target_module_exists

    leaves = (name for name, module in model.named_modules() if name and not any(True for _ in module.children()))
    return sorted(name for name in leaves if check_target_module_exists(config, name))


def _asked_targets(settings: Adapter, model: Any) -> list[str]:
    from peft import LoraConfig
    from peft.tuners.tuners_utils import _maybe_include_all_linear_layers  # what get_peft_model does with all-linear

    left_out = out_of_reach(model, settings.targets) or None
    config = LoraConfig(task_type="CAUSAL_LM", target_modules=settings.targets, exclude_modules=left_out)
    return _reached(_maybe_include_all_linear_layers(config, model), model)


def _yaml(name: str) -> str:
    return str(Adapter.model_fields[name].alias)


def _shown(value: Any) -> str:
    if not isinstance(value, list):
        return f"{value:g}" if isinstance(value, float) else str(value)
    names = list(dict.fromkeys(name.rpartition(".")[2] for name in value))
    return (", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")) or "none"
