"""Parts of checkpoints on their own: files, random generators, how often to save."""

from __future__ import annotations

import hashlib
import json
import math
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from tuneyard.training.checkpoint.interval import LONGEST_S, SHORTEST_S, interval_steps, mean_time_between_failures_s
from tuneyard.training.checkpoint.shards import write_shard
from tuneyard.training.checkpoint.state import load_random_state, random_state, seed_random

CPU = torch.device("cpu")


def test_a_shard_is_a_safetensors_file_and_its_hash_is_that_of_the_file(tmp_path: Path) -> None:
    tensors = {
        "a|weight|0": torch.arange(5, dtype=torch.float32),
        "b|weight|7": torch.randn(3, 4).to(torch.bfloat16).t(),
        "empty": torch.empty(0),
        "flags": torch.tensor([True, False]),
    }

    entry = write_shard(tmp_path / "shard.safetensors", tensors, {"format": "pt"})

    content = (tmp_path / "shard.safetensors").read_bytes()
    assert entry.path == "shard.safetensors"
    assert entry.size_bytes == len(content)
    assert entry.sha256 == hashlib.sha256(content).hexdigest()
    read = load_file(tmp_path / "shard.safetensors")
    assert all(torch.equal(read[key], tensor) for key, tensor in tensors.items())


def draws() -> tuple[float, float, float]:
    return random.random(), float(np.random.random()), float(torch.rand(1))


def test_generators_go_on_where_they_were() -> None:
    draws()
    state = json.loads(json.dumps(random_state(CPU)))
    expected = [draws() for _ in range(3)]

    seed_random(1, 2, 3)
    load_random_state(state, CPU)

    assert [draws() for _ in range(3)] == expected


def test_with_other_ranks_generators_depend_on_place_alone() -> None:
    found = {}
    for place in ((0, 10, 0), (0, 10, 1), (0, 11, 0), (1, 10, 0)):
        seed_random(*place)
        found[place] = draws()
        seed_random(*place)
        assert draws() == found[place]
    assert len(set(found.values())) == 4


def test_the_interval_is_youngs() -> None:
    # 10 s of training lost per save, a failure every 10,000 s: sqrt(2 * 10 * 10,000) s, in steps of 2 s.
    steps = interval_steps(save_cost_s=10, save_duration_s=20, step_s=2, failure_s=10_000)

    assert steps == round(math.sqrt(2 * 10 * 10_000) / 2)


@given(cost=st.floats(0, 1e4), duration=st.floats(0, 1e5), step=st.floats(1e-3, 1e3), workers=st.integers(1, 20_000))
def test_saves_never_overlap_and_are_neither_rare_nor_frantic(cost: float, duration: float, step: float, workers: int) -> None:
    steps = interval_steps(save_cost_s=cost, save_duration_s=duration, step_s=step, failure_s=mean_time_between_failures_s(workers))

    assert steps >= 1
    assert (steps + 0.5) * step >= 1.2 * duration
    assert (steps + 0.5) * step >= SHORTEST_S
    assert steps == 1 or (steps - 0.5) * step <= max(LONGEST_S, 1.2 * duration)


def test_large_gangs_save_more_often() -> None:
    few, many = (
        interval_steps(save_cost_s=1, save_duration_s=5, step_s=1, failure_s=mean_time_between_failures_s(workers))
        for workers in (2048, 16_384)
    )

    assert many < few
    assert mean_time_between_failures_s(16_384) == pytest.approx(3 * 3600, rel=0.05)
