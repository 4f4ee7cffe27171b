"""A model in this process, for `tuneyard generate` and `tuneyard chat`."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tuneyard.api import BadInput
from tuneyard.extras import need

if TYPE_CHECKING:
    from tuneyard.scoring.generation import Generator
    from tuneyard.training.model_finder import FoundModel


class LoadedModel:
    """A model that answers, and its base, which is loaded when it is asked for."""

    def __init__(self, found: FoundModel, cache: Path, *, chat: bool | None) -> None:
        """Load the model. `cache`: a folder for what has to be fetched. `chat` as in `Generator`, which says what is raised."""
        from tuneyard.runtime.model_folders import folders_of
        from tuneyard.scoring.generation import Generator

        folders = folders_of(found, cache)
        self.found, self._cache, self._chat = found, cache, chat
        self.generator = Generator(str(folders.model), str(folders.adapter) if folders.adapter else None, chat=chat)
        self._base: Generator | None = None

    def __str__(self) -> str:
        how = "prompts become one message of a user" if self.generator.chats else "prompts are sent as they are"
        return f"{self.found.name}: {self.found.what}; {how}"

    def base(self) -> Generator:
        """The model that this one was trained from, in its own form of prompts. Raises BadInput where that is not known."""
        if self._base is None:
            from tuneyard.runtime.model_folders import base_folder_of
            from tuneyard.scoring.generation import Generator

            folder = base_folder_of(self.found, self._cache)
            if folder is None:
                raise BadInput(f"no base of {self.found.name} is known", "give a run that trained from a model, or an adapter")
            self._base = Generator(str(folder), None, chat=self._chat)
        return self._base


@contextmanager
def loaded_model(given: str, task: str | None, command: str, *, chat: bool | None = None) -> Iterator[LoadedModel]:
    """A model by what a person names (see `find_model`), loaded for a command. Raises as `find_model` and `LoadedModel`."""
    from tuneyard.training.model_finder import find_model

    need("train", f"tuneyard {command}")
    found = find_model(given, task)
    # transformers imports it, and its import warns of kernels for 4-bit weights that it would download.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix=f"tuneyard-{command}-") as cache:
        yield LoadedModel(found, Path(cache), chat=chat)
