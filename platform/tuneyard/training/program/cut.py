"""The cut of a program's model over a tensor group, proven on its loss with a batch of its own collate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from tuneyard.api import BadInput
from tuneyard.api.train import ShardingRule
from tuneyard.parallel import CutRule, TensorParallelPlan, explain_tensor_parallel, wishes_of
from tuneyard.training.program.contract import Batch
from tuneyard.training.program.module import MODEL_PREFIX, ProgramModule


class _Recorded(nn.Module):
    """The loss as a forward pass of named tensors, without the checks that need gradients."""

    def __init__(self, module: ProgramModule) -> None:
        super().__init__()
        self.model = module.model
        self._module = [module]

    def forward(self, **batch: torch.Tensor) -> Any:
        return self._module[0].loaded.program.loss(self.model, Batch(batch))


def cut_of(module: ProgramModule, made: Mapping[str, Any], degree: int, rules: Sequence[ShardingRule] = ()) -> TensorParallelPlan | None:
    """The plan of the model over `degree` ranks, by ProgramModule's parameter names; None for one rank. `made`: a batch. `rules`: the
    user's own cuts, by names of the program's model.

    Raises BadInput if nothing can be cut, if a rule cannot hold, or if the loss cannot run on the meta device: it takes gradients of its
    own (MAML), or reads the values of tensors.
    """
    if degree == 1:
        return None
    inputs = {name: value for name, value in made.items() if torch.is_tensor(value)}
    recorded = _Recorded(module)
    wishes = wishes_of(module.model, [CutRule(rule.match, rule.cut) for rule in rules], MODEL_PREFIX)
    try:
        return explain_tensor_parallel(recorded, degree, inputs=inputs, wishes=wishes)
    except BadInput as error:
        raise BadInput(
            f"the model of {module.loaded.name} cannot be cut over {degree} ranks: {error.cause}",
            error.next_step
            if wishes
            else "set strategy.tensorParallel to 1; strategy.zero 3 shards a model that is too large for one device",
        ) from error
