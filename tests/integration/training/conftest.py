"""One tiny model and its data for all training tests: what they share costs seconds to build."""

from __future__ import annotations

import gc
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.builders.checkpoints import saves_in_turn
from tests.builders.models import write_chats, write_model, write_preferences, write_text
from tests.ranks import offload_compiled
from tests.servers.installed import s3, s3_server

__all__ = ["s3", "s3_server"]


@dataclass(frozen=True)
class Material:
    model: Path
    text: Path
    chats: Path
    preferences: Path


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Tiny matmuls lose more to threads than they gain, above all beside other tests."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="module", autouse=True)
def quiet_process() -> None:
    """No collection of what imports have made, for each file anew, as classes of models are loaded on the way: accelerate and DeepSpeed
    collect garbage in each run, which took a third of these tests' time."""
    import tuneyard.training.entry  # loaded before the freeze
    import tuneyard.training.zero_stack  # noqa: F401 - likewise

    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def disk_code(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes] | None]:
    """The compilation that tests of disks wait for; None where none of them runs. It goes on beside the tests before them."""
    if not any("disk_code_compiled" in getattr(item, "fixturenames", ()) for item in request.session.items):
        yield None
        return
    with offload_compiled.started() as process:
        yield process
        process.terminate()


@pytest.fixture(scope="module")
def disk_code_compiled(disk_code: subprocess.Popen[bytes]) -> None:
    """Tests after this find the code in the cache. A failure of the compiler is theirs to show."""
    disk_code.wait(offload_compiled.LIMIT_S)


@pytest.fixture(autouse=True)
def no_save_left_out() -> Iterator[None]:
    with saves_in_turn():
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that wait for the compilation come last. From an empty cache it takes a quarter of an hour."""
    items.sort(key=lambda item: "disk_code_compiled" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    folder = tmp_path_factory.mktemp("training")
    return Material(
        write_model(folder / "model"),
        write_text(folder / "text.jsonl"),
        write_chats(folder / "chats.jsonl"),
        write_preferences(folder / "preferences.jsonl"),
    )
