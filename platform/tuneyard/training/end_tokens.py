"""`generation_config.json` of a saved model: the tokens at which transformers and vLLM end an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import GenerationConfig

_FILE = "generation_config.json"


def write_end_tokens(folder: Path, tokenizer: Any, turn_end: int | None) -> None:
    """Write the end tokens into the file: `turn_end`, then those of the folder's file, or else of the tokenizer. Other settings stay.

    `turn_end`: the token that ends an assistant's turn. None: samples were not rendered as chats, and an existing file stays unchanged.
    """
    if (folder / _FILE).exists():
        if turn_end is None:
            return
        settings = GenerationConfig.from_pretrained(folder)
    else:
        settings = GenerationConfig(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    own = settings.eos_token_id
    named = [turn_end, *(own if isinstance(own, list) else [own]), tokenizer.eos_token_id]
    ends = list(dict.fromkeys(end for end in named if end is not None))
    if len(ends) > 1:
        settings.eos_token_id = ends
    elif ends:
        settings.eos_token_id = ends[0]
    settings.save_pretrained(folder)
