"""DeepSpeed's device in a process of several runs, and its libraries for disks as on a machine with a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.builders.models import cpu_plan, train_request, train_task
from tests.integration.training.conftest import Material

from tuneyard.api import BadInput
from tuneyard.training import train
from tuneyard.training.distributed import _accelerator_of_deepspeed

LOAD_ON_GPU = """
import gc, sys
gc.disable()
import torch
torch.cuda.is_available, torch.cuda.device_count = (lambda: True), (lambda: 1)
from tuneyard.training.zero_stack import deepspeed
assert "mlflow" not in sys.modules
from tuneyard.training.offload_ops import _load_async_io
assert deepspeed.accelerator.get_accelerator().device_name() == "cuda"
_load_async_io(lambda: None)
from deepspeed.ops.op_builder import AsyncIOBuilder
assert AsyncIOBuilder.__module__ == "deepspeed.ops.op_builder.async_io"
assert AsyncIOBuilder().load().aio_handle
"""


def test_a_run_on_cpu_leaves_the_environment_as_it_was(material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DS_ACCELERATOR", raising=False)

    for zero in (0, 2):
        train(train_request(tmp_path / str(zero), train_task(material.model, material.text, steps=1), cpu_plan(zero=zero)))
        assert "DS_ACCELERATOR" not in os.environ


def test_a_run_on_gpus_is_refused_where_deepspeed_has_settled_on_cpu(material: Material, tmp_path: Path) -> None:
    train(train_request(tmp_path, train_task(material.model, material.text, steps=1), cpu_plan(zero=2)))

    refused = pytest.raises(BadInput, match=r"DeepSpeed works on cpu in this process since an earlier run, and cannot change to GPUs")
    with refused, _accelerator_of_deepspeed(True, True):
        pass


@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("disk_code_compiled")
def test_a_machine_with_a_gpu_and_without_a_toolkit_has_the_libraries_for_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_HOME", raising=False)

    subprocess.run([sys.executable, "-W", "ignore", "-c", LOAD_ON_GPU], env={**os.environ, "DS_ACCELERATOR": "cuda"}, check=True)
