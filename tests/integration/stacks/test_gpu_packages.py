"""Warm starts, training and the client beside the packages that only a GPU image has: their mere presence must change nothing.

Each child process has them on its PYTHONPATH; fork servers and forks are held to that.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.builders.drivers import write_driver
from tests.builders.models import write_chats, write_model
from tests.integration.runtime.conftest import environment, read_report, train, tuneyard, write_jobspec
from tests.servers.gpu_packages import TRIED, gpu_packages, locked

from tuneyard.runtime.sessions.stacks import Stack, engine_stack, train_stack
from tuneyard.warm import WarmServer, start

ROOT = Path(__file__).parents[3]
IMPORT = """
import sys
import pynvml, torch
torch.cuda.is_available, torch.cuda.device_count = (lambda: True), (lambda: 1)
torch.cuda._get_nvml_device_index = lambda device: 0
asked, open_sessions = [], []
def of_torch(device):
    asked.append(device)
    return 9, 0
def init():
    if sys.argv[1] == "False":
        raise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    open_sessions.append(None)
torch.cuda.get_device_capability = of_torch
pynvml.nvmlInit, pynvml.nvmlShutdown = init, lambda: open_sessions and open_sessions.pop()
pynvml.nvmlDeviceGetHandleByIndex = lambda index: index
pynvml.nvmlDeviceGetCudaComputeCapability = lambda handle: (9, 0)
from tuneyard.training import bitsandbytes_stack
import bitsandbytes.cextension
assert "bitsandbytes" in sys.modules
assert bool(asked) is (sys.argv[1] == "False"), asked
assert not open_sessions
assert torch.cuda.get_device_capability is of_torch
assert not torch.cuda.is_initialized()
"""


@pytest.fixture(scope="module")
def packages() -> str:
    return gpu_packages()


@pytest.fixture
def beside(packages: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What this process starts has the packages, and these tests."""
    monkeypatch.setenv("PYTHONPATH", f"{packages}:{ROOT}")
    return packages


@pytest.mark.parametrize(
    ("stack", "loads_others"), [(train_stack([], on_gpu=True, quantised=True), False), (engine_stack(), True)], ids=["ranks", "engines"]
)
def test_a_stack_can_be_forked(stack: Stack, loads_others: bool, beside: str, tmp_path: Path) -> None:
    """torch imports `pynvml` before the fork. vLLM imports torchvision and others too; ranks have no use for them."""
    log = tmp_path / "server.log"
    server = WarmServer(stack.modules, absent=stack.absent, settings=dict(stack.settings), environment=os.environ, log=log)
    reading, writing = os.pipe()
    try:
        probe = "tests.integration.stacks.probes:see"
        process, why_cold = start(server.socket, probe, [",".join(TRIED), beside], descriptors=lambda: [writing])
        os.close(writing)
        assert not why_cold, log.read_text()
        with os.fdopen(reading) as answer:
            seen = json.loads(answer.read())
        assert process.wait(60) == 0, log.read_text()
    finally:
        server.close()
    lines = locked("gpu")
    assert seen["versions"] == {name: re.findall(r"==(\S+)", lines[name])[0] for name in TRIED}
    assert "pynvml" in seen["loaded"]
    assert (len(seen["loaded"]) > 1) is loads_others, seen["loaded"]


@pytest.mark.usefixtures("beside")
@pytest.mark.parametrize("nvml_answers", [True, False])
def test_a_server_holds_bitsandbytes_without_initializing_cuda(nvml_answers: bool) -> None:
    """On a machine that seems to have a GPU. Where NVML does not answer, torch is asked."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", IMPORT, str(nvml_answers)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("obstacle", "reason"), [("nvml", "NVML is initialized: pynvml has 1 nvmlInit without nvmlShutdown"), ("nvml ended", "")]
)
@pytest.mark.usefixtures("beside")
def test_nvml_is_refused_while_it_is_initialized(obstacle: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OBSTACLE", obstacle)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(write_driver(tmp_path / "driver")))
    server = WarmServer(["tests.integration.warm.obstacles"], environment=os.environ, log=tmp_path / "server.log")
    try:
        process, why_cold = start(server.socket, "os:getpid")
        assert process.wait(60) == 0
        assert why_cold == (f"the fork server refused: {reason}" if reason else "")
    finally:
        server.close()


def test_a_job_starts_warm(packages: str, tmp_path: Path) -> None:
    write_model(tmp_path / "model")
    write_chats(tmp_path / "chats.jsonl")
    task = {"name": "first", "train": train(steps=2), "resources": {"workers": 1}}
    out = tmp_path / "out"
    done = tuneyard("run", write_jobspec(tmp_path / "job.yaml", task), "--out", out, TUNEYARD_WARM_SERVERS="", PYTHONPATH=packages)
    assert done.returncode == 0, done.stderr
    assert "start cold" not in done.stderr
    report = read_report(out)["tasks"]["first"]
    assert len(report["losses"]) == 2
    assert report.get("warnings", []) == []
    assert (out / "logs/warm-training.log").exists()


def test_training_and_the_client_pass_their_tests(packages: str) -> None:
    """A few short ones of each, in a process of their own."""
    files = ["tests/integration/training/test_probes.py", "tests/unit/cli/test_entry.py", "tests/unit/runtime/test_choices.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
    done = subprocess.run(command, cwd=ROOT, env=environment(PYTHONPATH=packages), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-5000:]
    assert "skipped" not in done.stdout
