"""Facts about the rows that a model can take, read from its config.json alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx")

# fmt: off
LEAKING_WITHOUT_FLASH = frozenset(
    {
        "afmoe", "biogpt", "deepseek_v4", "falcon", "fuyu", "got_ocr2", "gpt_oss", "inkling_text", "opt", "qwen4_exp", "qwen4_exp_text",
        "reformer", "xglm", "zaya",
    }
)
# fmt: on
"""Models whose packed samples see each other with sdpa and eager attention, beside those that a rule refuses. Flash attention on a GPU
may keep them apart: the run tests it. A test compares this list with what transformers' classes do."""


def positions_of(config: Mapping[str, Any]) -> int | None:
    """The longest row that a model was made for, by its config.json; None where it names none."""
    text = config.get("text_config")
    for values in (text if isinstance(text, Mapping) else config, config):
        for name in _POSITIONS:
            if type(values.get(name)) is int and values[name] > 0:
                return int(values[name])
    return None
