"""One tiny model and its data for all training tests: what they share costs seconds to build."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.models import write_chats, write_model, write_preferences, write_text
from tests.servers import s3, s3_server

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


@pytest.fixture(scope="session")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    folder = tmp_path_factory.mktemp("training")
    return Material(
        write_model(folder / "model"),
        write_text(folder / "text.jsonl"),
        write_chats(folder / "chats.jsonl"),
        write_preferences(folder / "preferences.jsonl"),
    )
