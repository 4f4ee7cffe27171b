"""The learning rate of each step is that of transformers' schedules, which begin their warm-up at 0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.builders.models import cpu_plan, train_request, train_task
from tests.integration.training.conftest import Material
from transformers import get_scheduler

from tuneyard.tracking.events import Step
from tuneyard.training import train

RATE, STEPS = 1e-3, 4


@pytest.mark.parametrize(("warmup", "steps_of_warmup"), [(0, 0), (0.03, 1), (2, 2)])
def test_rates_are_those_of_transformers(warmup: float, steps_of_warmup: int, material: Material, tmp_path: Path) -> None:
    told: list[Any] = []
    optimizer = {"learningRate": RATE, "warmup": warmup, "schedule": "cosine"}
    task = train_task(material.model, material.text, steps=STEPS, optimizer=optimizer)
    train(train_request(tmp_path, task, cpu_plan()), emit=told.append)

    adam = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
    schedule = get_scheduler("cosine", adam, num_warmup_steps=steps_of_warmup, num_training_steps=STEPS)
    expected = []
    for _ in range(STEPS):
        expected.append(schedule.get_last_lr()[0])
        adam.step()
        schedule.step()
    assert [event.learning_rate for event in told if isinstance(event, Step)] == pytest.approx(expected)
    assert (expected[0] == 0) is (steps_of_warmup > 0)


def test_the_first_step_of_a_warm_up_changes_no_weight(material: Material, tmp_path: Path) -> None:
    task = train_task(material.model, material.text, steps=1, optimizer={"learningRate": RATE})
    train(train_request(tmp_path, task, cpu_plan()))
    before, after = (load_file(folder / "model.safetensors") for folder in (material.model, tmp_path / "out" / "model"))
    assert all(torch.equal(before[name], after[name]) for name in after)
