"""The DeepSpeed configuration that a plan becomes."""

from __future__ import annotations

from typing import Any

from tuneyard.planning import Plan
from tuneyard.training.deepspeed_config import deepspeed_config


def plan(**changes: Any) -> Plan:
    defaults: dict[str, Any] = {
        "sku": "a100-80gb", "workers": 4, "zero": 3, "precision": "bf16", "attention": "flash", "micro_batch": 2, "grad_accum": 3
    }  # fmt: skip
    return Plan(**{**defaults, **changes})


def config_of(**changes: Any) -> dict[str, Any]:
    config = deepspeed_config(plan(**changes), max_grad_norm=1.0)
    assert config is not None
    return config


def test_zero_0_needs_no_deepspeed() -> None:
    assert deepspeed_config(plan(zero=0), max_grad_norm=1.0) is None


def test_batch_sizes_multiply_up_to_the_global_batch() -> None:
    config = config_of()

    assert config["train_batch_size"] == 24
    assert config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] * 4 == 24


def test_zero_3_gathers_weights_when_it_saves() -> None:
    assert config_of(precision="bf16")["zero_optimization"]["stage3_gather_16bit_weights_on_model_save"] is True


def test_precision_is_switched_on_by_name() -> None:
    assert config_of(precision="bf16")["bf16"]["enabled"]
    assert config_of(precision="fp16")["fp16"]["enabled"]
    fp32 = config_of(precision="fp32")
    assert not fp32["bf16"]["enabled"]
    assert not fp32["fp16"]["enabled"]


def test_offload_to_cpu_uses_the_cpu_optimizer() -> None:
    config = config_of(offload_optimizer="cpu", offload_parameters="cpu")

    assert config["zero_optimization"]["offload_optimizer"]["device"] == "cpu"
    assert config["zero_optimization"]["offload_param"]["device"] == "cpu"
    assert config["zero_force_ds_cpu_optimizer"] is True


def test_offload_to_nvme_names_the_folder_and_sets_up_asynchronous_io() -> None:
    config = config_of(offload_optimizer="nvme", nvme_path="/mnt/nvme0")

    assert config["zero_optimization"]["offload_optimizer"]["nvme_path"] == "/mnt/nvme0"
    assert config["aio"]["queue_depth"] > 1


def test_without_offload_neither_is_configured() -> None:
    config = config_of(zero=2)

    assert "offload_optimizer" not in config["zero_optimization"]
    assert "offload_param" not in config["zero_optimization"]
    assert "aio" not in config
