"""Loads the tokenizer of a model, for every command and task that needs one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tuneyard.api import BadInput
from tuneyard.api.errors import said_by

_OWN_FILES = ("tokenizer*", "*vocab*", "*.model", "*.tiktoken", "tekken.json")
_SAVE = "copy tokenizer.json and tokenizer_config.json of the model that it was made from into it (tokenizer.save_pretrained writes them)"


def read_tokenizer(where: str | Path, *, revision: str | None = None, trust: bool = False, called: str = "") -> Any:
    """The tokenizer of a folder or of a Hugging Face name. `trust`: run code that comes with it. `called`: its model's name for people.

    Raises BadInput where there is none, or it cannot be read.
    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(where, revision=revision, trust_remote_code=trust)
    except (OSError, ValueError, ImportError) as error:
        name, folder = called or where, Path(where)
        if not folder.is_dir():
            step = "check the name and the connection to the Hugging Face hub; a private or gated model needs a token (hf auth login)"
            raise BadInput(f"the tokenizer of {name} cannot be loaded: {said_by(error)}", step) from error
        if not any(path for pattern in _OWN_FILES for path in folder.glob(pattern)):
            raise BadInput(f"{name} holds no tokenizer: there is no tokenizer.json, and no vocabulary", _SAVE) from error
        raise BadInput(f"the tokenizer of {name} cannot be loaded: {said_by(error)}", _SAVE) from error
