"""Parallel training of one model on several devices: who holds what. `mesh` says which ranks share a model, and which share rows.

Automatic tensor-parallel plans: a forward pass is recorded on the meta device (`recording`); layouts are carried through it by a rule for
each operation (`layout`, `operators`, `propagation`); the model's own code is run again with each rank's shapes (`replay`); what conflicts
is taken back (`search`); what is left is written as styles (`plan`). No list of models and no names of modules take part.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuneyard.parallel.mesh import Mesh
    from tuneyard.parallel.plan import Placement, TensorParallelPlan, explain_tensor_parallel, tensor_parallel_plan

_PLACES = {"Mesh": "mesh"}

__all__ = ["Mesh", "Placement", "TensorParallelPlan", "explain_tensor_parallel", "tensor_parallel_plan"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"tuneyard.parallel.{_PLACES.get(name, 'plan')}"), name)
