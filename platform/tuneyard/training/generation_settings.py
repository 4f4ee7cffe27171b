"""`generation_config.json` of a saved model: the settings of its base, and the tokens at which transformers and vLLM end an answer.

transformers loads some settings that it refuses to write, such as a temperature without `do_sample`. Published models have them, so this
module writes the file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from transformers import GenerationConfig

_FILE = "generation_config.json"


def save_with_settings(model: Any, folder: Path, **options: Any) -> None:
    """`save_pretrained(folder, **options)`, with the settings as they were loaded."""
    own = getattr(model, "generation_config", None)
    if own is None or not model.can_generate():
        model.save_pretrained(folder, **options)
        return
    model.generation_config = GenerationConfig()
    try:
        model.save_pretrained(folder, **options)
    finally:
        model.generation_config = own
    write_settings(model, folder)


def write_settings(model: Any, folder: Path) -> None:
    """Write the settings of a model that generates."""
    model.generation_config.to_json_file(folder / _FILE, use_diff=True, keys_to_pop=["compile_config"])


def write_end_tokens(folder: Path, tokenizer: Any, turn_end: int | None) -> None:
    """Write the end tokens into the file: `turn_end`, then those of the folder's file, or else of the tokenizer. Other settings stay.

    `turn_end`: the token that ends an assistant's turn. None: samples were not rendered as chats, and an existing file stays unchanged.
    """
    path = folder / _FILE
    if path.exists():
        if turn_end is None:
            return
        settings = json.loads(path.read_text())
    else:
        settings = GenerationConfig(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id).to_diff_dict()
    own = settings.get("eos_token_id")
    named = [turn_end, *(own if isinstance(own, list) else [own]), tokenizer.eos_token_id]
    ends = list(dict.fromkeys(end for end in named if end is not None))
    if ends:
        settings["eos_token_id"] = ends if len(ends) > 1 else ends[0]
    path.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")
