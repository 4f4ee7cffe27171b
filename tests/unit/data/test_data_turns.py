"""The token that ends an assistant's turn, by the templates of the families that people train."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders.models import tokenizer_of
from transformers import AddedToken

from tuneyard.data import turn_end
from tuneyard.data.chat import DEFAULT_TEMPLATE
from tuneyard.data.turns import with_ends

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
LLAMA_3 = (
    "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' }}"
    "{{ m['content'] | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] != 'user' %}{{ raise_exception('Conversation roles must alternate') }}{% endif %}"
    "{% for m in messages %}{% set role = 'model' if m['role'] == 'assistant' else m['role'] %}"
    "{{ '<start_of_turn>' + role + '\\n' + m['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"
)
PHI_3 = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>\\n' + m['content'] + '<|end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% if m['role'] == 'user' %}{{ '[INST] ' + m['content'] + ' [/INST]' }}"
    "{% else %}{{ ' ' + m['content'] + eos_token }}{% endif %}{% endfor %}"
)
GLM_4 = (
    "[gMASK]{% for m in messages %}{{ '<|' + m['role'] + '|>\\n' + m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
PLAIN = "{% for m in messages %}{{ '### ' + m['role'] + '\\n' + m['content'] + '\\n### End\\n' }}{% endfor %}{{ eos_token }}"
BLANKS = "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '\\n\\n  <|end|>\\n' }}{% endfor %}"
QUOTES = "{% for m in messages %}{{ m['role'] + ': \"' + m['content'] + '\".<|eot|>' }}{% endfor %}"
SHOUTS = "{% for m in messages %}{{ m['content'] | upper + eos_token }}{% endfor %}"
REFUSES = "{{ raise_exception('no') }}"
THINKS = (
    "{% for m in messages %}{% if m['role'] == 'assistant' %}{% set said = m['content'].split('</think>')[-1] %}"
    "{{ '<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n' + said + '<|im_end|>\\n' }}{% else %}"
    "{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endif %}{% endfor %}"
)


@pytest.mark.parametrize(
    ("template", "special", "eos", "expected"),
    [
        pytest.param(CHATML, ["<|im_start|>", "<|im_end|>"], "<|endoftext|>", "<|im_end|>", id="qwen-base"),
        pytest.param(CHATML, ["<|im_start|>", "<|endoftext|>"], "<|im_end|>", "<|im_end|>", id="qwen-instruct"),
        pytest.param(THINKS, ["<|im_start|>", "<|im_end|>"], "<|endoftext|>", "<|im_end|>", id="qwen3"),
        pytest.param(LLAMA_3, ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"], "<|end_of_text|>", "<|eot_id|>", id="llama-3"),
        pytest.param(GEMMA, ["<start_of_turn>", "<end_of_turn>"], "<eos>", "<end_of_turn>", id="gemma"),
        pytest.param(PHI_3, ["<|user|>", "<|assistant|>", "<|end|>"], "<|endoftext|>", "<|end|>", id="phi-3"),
        pytest.param(MISTRAL, ["[INST]", "[/INST]"], "</s>", "</s>", id="mistral"),
        pytest.param(GLM_4, ["[gMASK]", "<|user|>", "<|assistant|>"], "<|endoftext|>", "<|user|>", id="glm-4"),
        pytest.param(DEFAULT_TEMPLATE, [], "<|end|>", "<|end|>", id="tuneyard's default"),
        pytest.param(BLANKS, ["<|user|>", "<|assistant|>"], "<|end|>", "<|end|>", id="blanks before the mark"),
        pytest.param(QUOTES, ["<|eot|>"], "<|end|>", "<|eot|>", id="text before the mark"),
        pytest.param(PLAIN, [], "</s>", None, id="plain text"),
        pytest.param(SHOUTS, [], "</s>", None, id="content that is changed"),
        pytest.param(REFUSES, [], "</s>", None, id="a template that refuses"),
        pytest.param(CHATML, [], "<|endoftext|>", None, id="a mark that is no token"),
        pytest.param(None, [], "</s>", None, id="no template"),
    ],
)
def test_the_token_behind_the_assistants_content(template: str | None, special: list[str], eos: str, expected: str | None) -> None:
    tokenizer = tokenizer_of(special, eos=eos, chat_template=template)

    assert turn_end(tokenizer) == (None if expected is None else tokenizer.convert_tokens_to_ids(expected))


def test_a_token_that_was_added_without_being_special_counts_and_blanks_do_not() -> None:
    tokenizer: Any = tokenizer_of(["<|im_start|>"], eos="<|endoftext|>", chat_template=CHATML)
    tokenizer.add_tokens([AddedToken("<|im", special=False), AddedToken("<|im_end|>", special=False), AddedToken("\n", special=False)])

    assert turn_end(tokenizer) == tokenizer.convert_tokens_to_ids("<|im_end|>")
    tokenizer.chat_template = CHATML.replace("<|im_end|>", "")
    assert turn_end(tokenizer) == tokenizer.convert_tokens_to_ids("<|im_start|>")


def test_of_several_templates_the_default_one_counts() -> None:
    tokenizer = tokenizer_of(["<|im_start|>", "<|im_end|>"], eos="<|endoftext|>", chat_template={"tool_use": REFUSES, "default": CHATML})  # type: ignore[arg-type]  # transformers takes named ones

    assert turn_end(tokenizer) == tokenizer.convert_tokens_to_ids("<|im_end|>")
    tokenizer.chat_template = {"one": CHATML, "two": CHATML}
    assert turn_end(tokenizer) is None


@pytest.mark.parametrize(
    ("text", "spans", "expected"),
    [
        ("q a", [(2, 3)], ("q a<end>", [(2, 8)])),
        ("q a\n", [(2, 3)], ("q a<end>", [(2, 8)])),
        ("q a<end>\n", [(2, 9)], ("q a<end>\n", [(2, 9)])),
        ("q a<end>\nq b", [(2, 3), (11, 12)], ("q a<end>\nq b<end>", [(2, 8), (11, 17)])),
        ("q tab<end>", [(2, 3), (3, 10)], ("q tab<end>", [(2, 3), (3, 10)])),
        ("q a</s>", [(2, 3)], ("q a</s>", [(2, 3)])),
        ("q call<|call|>", [(2, 14)], ("q call<|call|>", [(2, 14)])),
        ("q a <end> b", [(2, 11)], ("q a <end> b<end>", [(2, 16)])),
    ],
)
def test_counted_turns_hold_the_token_that_ends_them(text: str, spans: list[Any], expected: Any) -> None:
    assert with_ends(text, spans, "<end>", ("<end>", "<|call|>")) == expected
