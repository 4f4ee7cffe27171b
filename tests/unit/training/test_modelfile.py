"""The chat template of a tokenizer in Ollama's language, and the rest of a Modelfile."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders.templates import OURS, Template

from tuneyard.training.export.ollama import go_template, modelfile, pieces_of

CHATML = (
    "{% if messages[0].role != 'system' %}{{ '<|im_start|>system\nBe kind.<|im_end|>\n' }}{% endif %}"
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
NAMED = {template.name: template for template in OURS}


class Rendering:
    """What `pieces_of` needs of a tokenizer."""

    def __init__(self, template: str) -> None:
        self.chat_template, self.bos_token, self.eos_token = template, "<|tuneyard_bos|>", "<|tuneyard_eos|>"

    def apply_chat_template(self, chat: list[dict[str, str]], **options: Any) -> str:
        from transformers.utils.chat_template_utils import render_jinja_template

        told, _ = render_jinja_template([chat], chat_template=self.chat_template, **{**self._special(), **options, "tokenize": None})
        return str(told[0])

    def convert_ids_to_tokens(self, token: int) -> str:
        return ["<|end|>", '"quoted"'][token]

    def _special(self) -> dict[str, str]:
        return {"bos_token": self.bos_token, "eos_token": self.eos_token}


def test_a_default_system_message_is_written_where_none_is_given() -> None:
    pieces = pieces_of(Rendering(CHATML), ["<|im_end|>"], adds_bos=False)

    assert pieces is not None
    assert pieces.without_system == "<|im_start|>system\nBe kind.<|im_end|>\n"
    assert go_template(pieces) == (
        '{{ if and .Messages (eq (index .Messages 0).Role "system") }}{{ else }}<|im_start|>system\nBe kind.<|im_end|>\n{{ end }}'
        "{{ range .Messages }}"
        '{{ if eq .Role "system" }}<|im_start|>system\n{{ .Content }}<|im_end|>\n'
        '{{ else if eq .Role "user" }}<|im_start|>user\n{{ .Content }}<|im_end|>\n'
        '{{ else if eq .Role "assistant" }}<|im_start|>assistant\n{{ .Content }}<|im_end|>\n'
        "{{ end }}{{ end }}<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("name", ["no_end", "end_as_text", "alternates", "no_system", "marked", "trims", "no_prompt"])
def test_pieces_write_what_the_template_writes(name: str) -> None:
    """`pieces_of` itself compares chats of up to six messages; this one is longer."""
    tokenizer = Rendering(NAMED[name].text)
    pieces = pieces_of(tokenizer, ["<|end|>"], adds_bos=False)
    roles = ("user", "assistant") * 4 + ("user",)
    chat = [{"role": role, "content": f"\u2e28{place}\u2e29"} for place, role in enumerate(roles)]

    assert pieces is not None
    assert pieces.prompt(roles) == tokenizer.apply_chat_template(chat, add_generation_prompt=True)


def test_the_first_token_is_left_to_the_program_that_adds_it() -> None:
    template: Template = NAMED["writes_bos"]

    added, written = (pieces_of(Rendering(template.text), ["<|end|>"], adds_bos=adds) for adds in (True, False))

    assert added is not None
    assert written is not None
    assert (added.without_system, written.without_system) == ("", "<|tuneyard_bos|>")


@pytest.mark.parametrize("name", ["system_left_out", "dated", "needs_documents"])
def test_a_template_that_does_more_is_left_out_and_said(name: str) -> None:
    text, has_template = modelfile("m.gguf", Rendering(NAMED[name].text), [0, 1], adds_bos=False)

    assert not has_template
    assert text == 'FROM ./m.gguf\nTEMPLATE """{{ .Prompt }}"""\nPARAMETER stop "<|end|>"\nPARAMETER stop "\\"quoted\\""\n'
