"""What bound a run, from what its machines did."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tuneyard.tracking.bound import bound_of
from tuneyard.training import machine_use

STEPPING = {"data": 0.1, "forward": 30.0, "backward": 60.0, "optimizer": 5.0}


def machine(**means: float) -> dict[str, Any]:
    figures = {name: {"mean": value, "most": value} for name, value in means.items()}
    return {"host": "a", "ranks": 8, "seconds": 60, **figures}


GPUS = {"gpu_utilization": 0.97, "gpu_memory_share": 0.93, "network_sent_gb_per_s": 10.0, "network_received_gb_per_s": 9.0}


@pytest.mark.parametrize(
    ("split", "machines", "more", "cause", "words"),
    [
        (STEPPING | {"data": 40.0}, [machine(**GPUS)], {}, "data", "waited for rows 30% of the time"),
        (STEPPING | {"checkpoint": 30.0}, [machine(**GPUS)], {}, "checkpoints", "24% of the time"),
        (STEPPING | {"optimizer": 60.0}, [machine(**GPUS)], {"offloads": True}, "host optimizer", "its optimizer took 40%"),
        (STEPPING | {"optimizer": 60.0}, [machine(**GPUS)], {}, "memory", "93% full"),
        (STEPPING, [machine(**GPUS), machine(**GPUS)], {"network_gb_s": 12.5}, "network", "sent 10 GB/s on average, and 12.5 are planned"),
        (STEPPING, [machine(**GPUS), machine(**GPUS)], {"network_gb_s": 100.0}, "memory", "the network sent 10 GB/s"),
        (STEPPING, [machine(**GPUS | {"gpu_utilization": 0.4})], {}, "host", "GPUs were busy 40%"),
        (STEPPING, [machine(**GPUS | {"gpu_memory_share": 0.5})], {"mfu": 0.41}, "compute", "at an MFU of 41%"),
        (STEPPING, [machine(cpu_share=0.98, cpu_share_of_rank=0.12)], {}, "compute", "processors were busy 98%"),
        (STEPPING, [machine(cpu_share=0.98, cpu_share_of_rank=0.03)], {}, "host", "other work on the machine"),
        (STEPPING, [machine(cpu_share=0.5, cpu_share_of_rank=0.06)], {}, "host", "ranks waited for each other"),
    ],
)
def test_the_cause_that_hides_the_others_is_named(
    split: dict[str, float], machines: list[dict[str, Any]], more: dict[str, Any], cause: str, words: str
) -> None:
    found = bound_of(split, machines, **more)
    assert found is not None
    assert found.cause == cause
    assert words in found.sentence


def test_a_short_run_and_one_without_samples_have_no_cause() -> None:
    assert bound_of(STEPPING, []) is None
    assert bound_of(STEPPING, [{**machine(**GPUS), "seconds": 3}]) is None


def test_a_machine_is_sampled_while_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_use, "EVERY_S", 0.05)
    use = machine_use.MachineUse(ranks=2, gpus=True)  # without a GPU there is nothing to ask for
    use.start()
    until = time.monotonic() + 60
    while use.to_dict().get("seconds", 0) < 0.1 and time.monotonic() < until:
        sum(range(100_000))
    use.stop()
    found = use.to_dict()
    assert found["ranks"] == 2
    assert 0 < found["cpu_share_of_rank"]["mean"] <= found["cpu_share_of_rank"]["most"] <= 1
    assert 0 < found["cpu_share"]["mean"] <= 1
    assert found["host_memory_gb"]["most"] > 0
    assert "gpu_utilization" not in found


def test_a_run_that_ends_at_once_has_one_sample() -> None:
    use = machine_use.MachineUse()
    use.start()
    use.stop()
    assert use.to_dict()["host_memory_gb"]["most"] > 0


def test_nothing_is_sampled_before_it_starts() -> None:
    use = machine_use.MachineUse()
    use.stop()
    assert use.to_dict() == {}
