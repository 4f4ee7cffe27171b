"""AdamW with bf16 means: as close to fp32 as their rounding, and without the drift of rounding to nearest."""

from __future__ import annotations

import pytest
import torch

from tuneyard.training.bf16_states import Bf16AdamW, rounded_at_random

SETTINGS = {"lr": 1e-2, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.1}


def trained(optimizer: type[torch.optim.Optimizer], steps: int, **settings: float) -> tuple[torch.Tensor, torch.optim.Optimizer]:
    """A weight after some steps of a noisy least-squares problem."""
    draws = torch.Generator().manual_seed(1)
    weight = torch.nn.Parameter(torch.zeros(300))
    goal = torch.linspace(-1, 1, 300)
    made = optimizer([weight], **SETTINGS, **settings)  # type: ignore[arg-type]
    for _ in range(steps):
        weight.grad = weight.detach() - goal + 0.3 * torch.randn(300, generator=draws)
        made.step()
    return weight.detach(), made


def test_it_follows_adamw() -> None:
    ours, made = trained(Bf16AdamW, 200)
    theirs, _ = trained(torch.optim.AdamW, 200)

    assert (ours - theirs).abs().max() < 0.02
    assert {state.dtype for state in made.state[made.param_groups[0]["params"][0]].values() if torch.is_tensor(state)} == {torch.bfloat16}


def test_the_second_mean_falls_once_gradients_are_gone() -> None:
    weight = torch.nn.Parameter(torch.zeros(4096))
    made = Bf16AdamW([weight], lr=0.0)
    weight.grad = torch.ones(4096)
    made.step()
    before = made.state[weight]["exp_avg_sq"].float().mean()

    weight.grad = torch.zeros(4096)
    for _ in range(300):
        made.step()

    after = made.state[weight]["exp_avg_sq"].float().mean()
    assert float(after / before) == pytest.approx(0.999**300, rel=0.02)


def test_rounding_to_nearest_would_never_let_it_fall() -> None:
    """Why the means are rounded at random."""
    mean = torch.ones(1, dtype=torch.bfloat16)

    for _ in range(300):
        mean = (mean.float() * 0.999).to(torch.bfloat16)

    assert float(mean) == 1.0


@pytest.mark.parametrize("value", [1.001, -1.001, 3.3e-12, 0.0, float("inf"), -7.0])
def test_rounding_at_random_is_right_on_average(value: float) -> None:
    draws = torch.randint(0, 65536, (200_000,), dtype=torch.int32, generator=torch.Generator().manual_seed(3))

    rounded = rounded_at_random(torch.full((200_000,), value), draws)

    assert torch.equal(rounded, rounded.to(torch.bfloat16).float())
    assert float(rounded.double().mean()) == pytest.approx(value, rel=1e-4)


def test_the_seed_and_the_step_decide_what_is_drawn() -> None:
    one, _ = trained(Bf16AdamW, 20, seed=5)
    same, _ = trained(Bf16AdamW, 20, seed=5)
    other, _ = trained(Bf16AdamW, 20, seed=6)

    assert torch.equal(one, same)
    assert not torch.equal(one, other)
