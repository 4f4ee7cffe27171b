"""The tensor-parallel plan of a language model. Rank 0 proves it for all ranks, before data are prepared and weights are loaded.

The proof reads no weights, and takes seconds of one core. Every rank compares the fingerprint of the proven model with that of
the model it loads, and proves the plan of its own model where they differ: an embedding with more rows, for example.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from tuneyard.api import BadInput
from tuneyard.api.errors import said_by
from tuneyard.parallel import TensorParallelPlan, explain_tensor_parallel
from tuneyard.planning import Plan
from tuneyard.training.distributed import World
from tuneyard.training.first_rank import made_on_first
from tuneyard.training.training_pass import refuse_other_training_pass

_NOT_PROVEN = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version", "use_cache")
"""Settings of a configuration that a proof does not depend on. The types of weights are compared weight by weight."""


@dataclass(frozen=True)
class ProvenPlan:
    """A plan, and the fingerprint of the model that it was proven for."""

    plan: TensorParallelPlan
    fingerprint: str


def config_from(values: Mapping[str, Any]) -> Any:
    """The configuration in a config.json. Raises BadInput for a type of model that transformers does not have."""
    try:
        with tempfile.TemporaryDirectory() as folder:  # transformers decodes its notation for infinity only when it reads a file
            (Path(folder) / "config.json").write_text(json.dumps(dict(values)))
            return AutoConfig.from_pretrained(folder)
    except (ValueError, TypeError) as error:
        kind = values.get("model_type", "that config.json does not name")
        raise BadInput(f"a model of type {kind} has no code in transformers", "name a model of transformers") from error


def plan_from_config(config: Any, degree: int, *, sequence: bool = False, trust_remote_code: bool = False) -> TensorParallelPlan:
    """The cut of the causal language model of a configuration; no weight is read. `sequence`: tokens are sliced between its blocks too.

    Raises BadInput if nothing of it can be cut, and for a model whose computation differs between training and evaluation.
    """
    return _proven(config, degree, sequence=sequence, trust_remote_code=trust_remote_code).plan


def prove_on_first(config: Any, plan: Plan, world: World, *, dtype: torch.dtype, trust_remote_code: bool) -> ProvenPlan:
    """Like `plan_from_config` for the layout of `plan`, proven on rank 0 for weights of `dtype`. Collective: every rank gets the plan or
    the error of rank 0.
    """
    degree, sequence = plan.tensor_parallel, plan.sequence_parallel
    return made_on_first(world, lambda: _proven(config, degree, sequence=sequence, trust_remote_code=trust_remote_code, dtype=dtype))


def tensor_plan(model: Any, plan: Plan, proven: ProvenPlan | None = None) -> TensorParallelPlan | None:
    """The cut of the model under a plan, before it gets an adapter or hooks; None on one rank. `proven` is used if it is of this model.

    Raises BadInput if nothing can be cut.
    """
    if plan.tensor_parallel == 1:
        return None
    if proven is not None and _is_of(proven.plan, plan) and proven.fingerprint == fingerprint(model):
        return proven.plan
    return explain_tensor_parallel(model, plan.tensor_parallel, sequence=plan.sequence_parallel)


def _is_of(cut: TensorParallelPlan, plan: Plan) -> bool:
    return cut.degree == plan.tensor_parallel and (cut.sequence is not None) == plan.sequence_parallel


def fingerprint(model: nn.Module) -> str:
    """A hash of all that a proof depends on: classes of modules, their hooks, shapes and types of tensors, ties, configuration."""
    tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    first: dict[int, str] = {}
    facts = {
        "versions": (torch.__version__, transformers.__version__),
        "modules": [(name, _described(module)) for name, module in model.named_modules(remove_duplicate=False)],
        "tensors": [(name, list(each.shape), str(each.dtype), first.setdefault(id(each), name)) for name, each in tensors],
        "config": _settings(model.config.to_dict()) if hasattr(model, "config") else {},
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()


def _proven(config: Any, degree: int, *, sequence: bool, trust_remote_code: bool, dtype: torch.dtype | None = None) -> ProvenPlan:
    options = {} if dtype is None else {"dtype": dtype}
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code, **options)
    except (ValueError, ImportError) as error:
        cause = f"a {config.model_type} model cannot be built: {said_by(error)}"
        raise BadInput(cause, "name a causal language model") from error
    plan = explain_tensor_parallel(model, degree, sequence=sequence)
    refuse_other_training_pass(model)
    return ProvenPlan(plan, fingerprint(model))


def _described(module: nn.Module) -> str:
    """Class and settings of a module without its children, and whether it has a forward or hooks of its own."""
    kind = type(module)
    hooks = [len(value) for name, value in sorted(vars(module).items()) if name.endswith("_hooks") and isinstance(value, Mapping)]
    return f"{kind.__module__}.{kind.__qualname__}({module.extra_repr()}) {'forward' in vars(module)} {hooks}"


def _settings(values: Any) -> Any:
    if isinstance(values, Mapping):
        return {str(name): _settings(value) for name, value in values.items() if name not in _NOT_PROVEN}
    return [_settings(value) for value in values] if isinstance(values, list | tuple) else values
