"""24 chats to learn by heart, their tokenizer, and each row's tokens as the trainer gets them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.builders.models import TEXT, tokenizer_of

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
MARK = "<|im_end|>"
"""Ends a turn; the tokenizer's own end token is another one, as of the base models of Qwen."""
_WORDS = list(dict.fromkeys(TEXT.split()))
ANSWERS = {
    f"{_WORDS[i]} {_WORDS[(i + 5) % 20]}": " ".join(_WORDS[(i * 3 + j * 7 + 2) % len(_WORDS)] for j in range(2 + i % 3)) for i in range(20)
}
ANSWERS |= {f"{_WORDS[i]} {_WORDS[i + 9]}": f"{_WORDS[i + 2]} {_WORDS[i + 11]}" for i in range(4)}


def write_rows(path: Path) -> Path:
    """JSONL with a column messages."""
    turns = [[{"role": "user", "content": q}, {"role": "assistant", "content": a}] for q, a in ANSWERS.items()]
    path.write_text("".join(json.dumps({"messages": each}) + "\n" for each in turns))
    return path


def tokenizer() -> Any:
    return tokenizer_of(["<|im_start|>", MARK], eos="<|endoftext|>", chat_template=CHATML)


def question(tokenizer: Any, text: str) -> Any:
    """Token ids (1, length) of a prompt that asks for an answer."""
    messages = [{"role": "user", "content": text}]
    return tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt")["input_ids"]
