"""AdamW with its two running means in bf16: `optimizer.states: bf16`. 4 bytes per trained parameter instead of 8.

A bf16 has 8 bits of precision. A decay of 0.999 changes a value by less than half of its last bit, so rounding to nearest would never let
it fall. Therefore the means are computed in fp32 and rounded up or down at random, with the right expectation (stochastic rounding: Gupta
et al. 2015). The random bits depend only on the seed, the step and the tensor: replicas stay equal bit for bit, and a resumed run repeats
them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch

_CHUNK = {"cpu": 1 << 16, "cuda": 1 << 26}
"""Elements that are updated at a time: in fp32 they fit into a core's cache, or into little of a GPU's memory."""
_MEANS = ("exp_avg", "exp_avg_sq")


class Bf16AdamW(torch.optim.Optimizer):
    """Decoupled weight decay as in torch's AdamW (Loshchilov and Hutter 2019); parameters and their updates keep their own dtype."""

    states_dtype = torch.bfloat16

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        seed: int = 0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self._seed = seed
        self._numbers: dict[int, int] = {}
        for group in self.param_groups:
            for parameter in group["params"]:
                self._number(parameter)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """One update of all parameters with a gradient."""
        assert closure is None
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)

    def _update(self, parameter: torch.Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        for kind in _MEANS:
            if kind not in state:
                state[kind] = torch.zeros_like(parameter, dtype=self.states_dtype)
        step = state["step"] = int(state.get("step", 0)) + 1
        draws = torch.Generator(parameter.device)
        draws.manual_seed(((self._seed * 1_000_003 + step) * 65_537 + self._number(parameter)) % (1 << 63))
        flat = [tensor.view(-1) for tensor in (parameter, parameter.grad, *(state[kind] for kind in _MEANS))]
        size = _CHUNK.get(parameter.device.type, _CHUNK["cuda"])
        for chunks in zip(*(tensor.split(size) for tensor in flat), strict=True):
            _update_chunk(*chunks, group=group, step=step, draws=draws)

    def _number(self, parameter: torch.Tensor) -> int:
        """Index of a tensor, in the order in which the optimizer met them: DeepSpeed replaces the model's tensors by flat ones."""
        return self._numbers.setdefault(id(parameter), len(self._numbers))


def _update_chunk(
    weight: torch.Tensor,
    gradient: torch.Tensor,
    exp_avg: torch.Tensor,
    exp_avg_sq: torch.Tensor,
    *,
    group: dict[str, Any],
    step: int,
    draws: torch.Generator,
) -> None:
    lr, (beta1, beta2) = float(group["lr"]), group["betas"]
    gradient = gradient.float()
    mean = exp_avg.float().mul_(beta1).add_(gradient, alpha=1 - beta1)
    square = exp_avg_sq.float().mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    denominator = square.sqrt().div_(math.sqrt(1 - beta2**step)).add_(group["eps"])
    weight.mul_(1 - lr * group["weight_decay"])
    weight.addcdiv_(mean.to(weight.dtype), denominator.to(weight.dtype), value=-lr / (1 - beta1**step))
    bits = torch.empty(weight.shape, dtype=torch.int32, device=weight.device).random_(generator=draws)  # 31 bits: 16 for each, one shared
    exp_avg.copy_(rounded_at_random(mean, bits & 0xFFFF))
    exp_avg_sq.copy_(rounded_at_random(square, bits >> 15))


def rounded_at_random(values: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    """fp32 `values` rounded to one of the two nearest bf16 values, the nearer one with the higher probability.

    `draws`: int32, uniform in [0, 65536). A bf16 is the upper half of an fp32. Infinities have zeros in the lower half, so they do not
    carry into the upper half, and stay infinite.
    """
    return ((values.view(torch.int32) + draws) & ~0xFFFF).view(torch.float32)
