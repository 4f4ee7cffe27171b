from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.builders.models import write_tokenizer

from tuneyard.api import TrainData
from tuneyard.data import Prepared, prepare


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Without {% generation %} markers: the assistant's turns are found by prefixes."""
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="session")
def plain_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Without a chat template."""
    return write_tokenizer(tmp_path_factory.mktemp("plain"), chat_template=None)


@pytest.fixture
def make(tmp_path: Path, tokenizer: Any) -> Callable[..., Prepared]:
    """Prepare a source with a cache of the test's own: make(path, pack=True, …)."""

    def make(source: Path | str, *, objective: Any = "sft", tokenizer: Any = tokenizer, emit: Any = None, **spec: Any) -> Prepared:
        data = TrainData(source=str(source), **spec)
        heard = [] if emit is None else emit
        return prepare(data, tokenizer, objective=objective, seed=0, cache_dir=tmp_path / "cache", emit=heard.append, task="t")

    return make
