"""Chat templates that installed packages ship, read from there, and templates of our own for traits that none of them has.

A tokenizer for each has the template's special tokens as added tokens, found in its text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.builders.models import tokenizer_of

_TOKENS = re.compile(
    r"<[|｜][^<>'\"{}\s]*[|｜]>|<\|[a-z_]+>|<[a-z_]+\|>|<(?:start|end)_of_\w+>|\[/?[A-Z_]+\]|</?s>|<end_of_utterance>|\[gMASK\]|<sop>"
)
BOS, EOS = "<|tuneyard_bos|>", "<|tuneyard_eos|>"


@dataclass(frozen=True)
class Template:
    """`source`: the package that ships it, or `ours`."""

    name: str
    source: str
    text: str

    def __str__(self) -> str:
        return f"{self.source}-{self.name}"

    def tokenizer(self, eos: str = EOS, bos: str = BOS) -> Any:
        special = sorted({BOS, EOS, *_TOKENS.findall(self.text)} - {eos})
        # Some templates write thousands of words of instructions: tokens of their own keep chats short.
        tokenizer = tokenizer_of(special, eos=eos, chat_template=self.text, size=1600, texts=(self.text,) * 2)
        tokenizer.bos_token = bos
        return tokenizer


def _shipped(package: str, folder: str) -> list[Template]:
    spec = find_spec(package)
    paths = sorted((Path(str(spec and spec.origin)).parent / folder).glob("*.jinja"))
    return [Template(path.stem, package, path.read_text()) for path in paths if not path.stem.endswith("_training")]


_LOOP = "{% for m in messages %}"
_OPEN = "{% if add_generation_prompt %}<|assistant|>{% endif %}"
_TURN = "{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}"
_THINKS = (
    _LOOP + "{{ '<|' + m['role'] + '|>' }}"
    "{% if m.reasoning_content and loop.last %}{{ '<think>' + m.reasoning_content + '</think>' }}{% endif %}"
    "{{ m['content'] + '<|end|>' }}{% endfor %}" + _OPEN
)
_OURS = {
    "no_end": _LOOP + "{{ '<|' + m['role'] + '|>' + m['content'] }}{% endfor %}" + _OPEN,
    "end_as_text": _LOOP + "{{ '### ' + m['role'] + '\\n' + m['content'] + '\\n### End\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '### assistant\\n' }}{% endif %}",
    "end_always": _LOOP + "{{ '<|' + m['role'] + '|>' + m['content'] }}{% endfor %}{{ eos_token }}",
    "no_system": "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    + _LOOP
    + _TURN
    + "{% endfor %}"
    + _OPEN,
    "system_left_out": _LOOP + "{% if m['role'] != 'system' %}" + _TURN + "{% endif %}{% endfor %}" + _OPEN,
    "alternates": _LOOP
    + "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    + "{% if m['role'] == 'user' %}{{ '[INST] ' + m['content'] + ' [/INST]' }}{% else %}{{ ' ' + m['content'] + eos_token }}{% endif %}"
    + "{% endfor %}",
    "strips_thinking": _THINKS,
    "marked": _LOOP
    + "{{ '<|' + m['role'] + '|>' }}{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] + '<|end|>' }}{% endgeneration %}"
    + "{% else %}{{ m['content'] + '<|end|>' }}{% endif %}{% endfor %}"
    + _OPEN,
    "writes_bos": "{{ bos_token }}" + _LOOP + _TURN + "{% endfor %}" + _OPEN,
    "trims": _LOOP + "{{ '<|' + m['role'] + '|>' + m['content'] | trim + '<|end|>' }}{% endfor %}" + _OPEN,
    "dated": "{{ '<|date|>' + strftime_now('%Y-%m-%d') + '<|end|>' }}" + _LOOP + _TURN + "{% endfor %}" + _OPEN,
    "needs_documents": "{{ documents[0].title }}" + _LOOP + _TURN + "{% endfor %}" + _OPEN,
    "asks_for_a_flag": "{% if tools_in_user_message %}x{% endif %}" + _LOOP + _TURN + "{% endfor %}" + _OPEN,
    "no_prompt": _LOOP + _TURN + "{% endfor %}",
    "shouts": _LOOP + "{{ '<|' + m['role'] + '|>' + m['content'] | upper + '<|end|>' }}{% endfor %}" + _OPEN,
}

TRL = _shipped("trl", "chat_templates")
VLLM = _shipped("vllm", "transformers_utils/chat_templates")
OURS = [Template(name, "ours", text) for name, text in _OURS.items()]
ALL = [*TRL, *VLLM, *OURS]
