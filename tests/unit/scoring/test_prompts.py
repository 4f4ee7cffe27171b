"""Which tokens an engine gets: the chat template's, or the prompt's own, and those of training for likelihoods."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.builders.models import write_tokenizer
from transformers import AutoTokenizer

from tuneyard.api import BadInput
from tuneyard.data import set_prompt_form
from tuneyard.scoring.prompts import BadRow, PromptEncoder


@pytest.fixture(scope="module")
def with_template(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return write_tokenizer(Path(tmp_path_factory.mktemp("tokenizer")))


@pytest.fixture(scope="module")
def without_template(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return write_tokenizer(Path(tmp_path_factory.mktemp("tokenizer")), chat_template=None)


def test_text_becomes_a_users_message_where_there_is_a_template(with_template: Any) -> None:
    prompts = PromptEncoder(with_template, chat=None, max_length=64)

    assert with_template.decode(prompts.prompt("the cat")) == "<|user|>the cat<|end|><|assistant|>"
    assert prompts.prompt("the cat") == prompts.prompt([{"role": "user", "content": "the cat"}])


def test_text_is_sent_as_it_is_without_a_template_or_on_wish(with_template: Any, without_template: Any) -> None:
    for tokenizer, chat in ((without_template, None), (with_template, False)):
        assert tokenizer.decode(PromptEncoder(tokenizer, chat=chat, max_length=64).prompt("the cat")) == "the cat"


def test_a_models_training_decides_where_nothing_else_is_said(with_template: Any, without_template: Any, tmp_path: Path) -> None:
    for tokenizer, chats, expected in (
        (with_template, False, "the cat"),
        (with_template, True, "<|user|>the cat<|end|><|assistant|>"),
        (without_template, True, "the cat"),
    ):
        changed = copy.deepcopy(tokenizer)
        set_prompt_form(changed, chats=chats)
        changed.save_pretrained(tmp_path / "model")
        again = AutoTokenizer.from_pretrained(tmp_path / "model")
        assert again.decode(PromptEncoder(again, chat=None, max_length=64).prompt("the cat")) == expected
        shutil.rmtree(tmp_path / "model")


def test_a_completion_follows_the_prompts_own_tokens_and_ends(without_template: Any) -> None:
    prompts = PromptEncoder(without_template, chat=None, max_length=64)

    tokens = prompts.likelihood("the cat s", "at on a mat")  # a tokenizer would like to join "s" and "at"

    prompt = prompts.prompt("the cat s")
    assert tokens.ids[: len(prompt)] == prompt
    assert tokens.counted == [False] * len(prompt) + [True] * (len(tokens.ids) - len(prompt))
    assert without_template.decode(tokens.ids[len(prompt) :]) == "at on a mat<|end|>"


def test_of_a_chat_the_assistants_last_turn_counts(with_template: Any) -> None:
    history = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "cat"}]

    tokens = PromptEncoder(with_template, chat=None, max_length=64).likelihood(history, "sat")

    counted = [token for token, counts in zip(tokens.ids, tokens.counted, strict=True) if counts]
    assert with_template.decode(counted) == "sat<|end|>"


def test_a_prompt_that_leaves_no_room_is_a_bad_row(without_template: Any) -> None:
    prompts = PromptEncoder(without_template, chat=None, max_length=4)

    with pytest.raises(BadRow, match=r"engine\.maxLength 4 allows 3"):
        prompts.prompt("the cat sat on a mat")
    with pytest.raises(BadRow, match="prompt and reference have"):
        prompts.likelihood("the", "cat sat on a mat")


def test_messages_need_a_template(without_template: Any) -> None:
    with pytest.raises(BadRow, match="no chat template"):
        PromptEncoder(without_template, chat=None, max_length=64).prompt([{"role": "user", "content": "cat"}])
    with pytest.raises(BadInput, match="no chat template"):
        PromptEncoder(without_template, chat=True, max_length=64)


def test_a_prompt_that_holds_the_answer_is_a_bad_row(with_template: Any) -> None:
    prompts = PromptEncoder(with_template, chat=None, max_length=64)
    answered = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    with pytest.raises(BadRow, match="ends with a turn of the assistant"):
        prompts.prompt(answered)
    with pytest.raises(BadRow, match="ends with a turn of the assistant"):
        prompts.likelihood(answered, "b")


def test_a_chats_answer_ends_with_the_templates_mark_and_a_plain_one_without(with_template: Any, without_template: Any) -> None:
    mark = [with_template.convert_tokens_to_ids("<|end|>")]
    assert PromptEncoder(with_template, chat=None, max_length=64).ends == mark
    assert PromptEncoder(with_template, chat=True, max_length=64).ends == mark
    assert PromptEncoder(with_template, chat=False, max_length=64).ends == []
    assert PromptEncoder(without_template, chat=None, max_length=64).ends == []


TOOL = {"type": "function", "function": {"name": "weather", "description": "d", "parameters": {"type": "object", "properties": {}}}}
WITH_TOOLS = (
    "{% if tools %}<|system|>{{ tools | tojson }}<|end|>{% endif %}"
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}"
    "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def test_a_system_column_becomes_the_first_turn_of_chats(with_template: Any, without_template: Any) -> None:
    chats = PromptEncoder(with_template, chat=None, max_length=64)
    expected = "<|system|>be brief<|end|><|user|>the cat<|end|><|assistant|>"
    assert with_template.decode(chats.prompt("the cat", system="be brief")) == expected
    assert with_template.decode(chats.prompt([{"role": "user", "content": "the cat"}], system="be brief")) == expected
    own = [{"role": "system", "content": "be long"}, {"role": "user", "content": "the cat"}]
    assert "be long" in with_template.decode(chats.prompt(own, system="be brief"))
    assert "be brief" not in with_template.decode(chats.prompt(own, system="be brief"))
    plain = PromptEncoder(without_template, chat=None, max_length=64)
    assert without_template.decode(plain.prompt("the cat", system="be brief")) == "the cat", "as training joins pairs of plain texts"


def test_tools_are_shown_to_the_model_or_the_row_is_an_error(with_template: Any) -> None:
    tooled = copy.deepcopy(with_template)
    tooled.chat_template = WITH_TOOLS
    prompts = PromptEncoder(tooled, chat=None, max_length=512)

    text = tooled.decode(prompts.prompt("rain?", tools=[TOOL]))
    assert '"weather"' in text
    assert tooled.decode(prompts.likelihood("rain?", "no", tools=[TOOL]).ids).startswith(text)
    with pytest.raises(BadRow, match="leaves tools out"):
        PromptEncoder(with_template, chat=None, max_length=512).prompt("rain?", tools=[TOOL])


def test_a_text_prompt_of_a_chat_is_stripped_as_in_training(with_template: Any) -> None:
    prompts = PromptEncoder(with_template, chat=None, max_length=64)
    assert prompts.prompt(" the cat\n") == prompts.prompt("the cat")
    assert prompts.likelihood("the cat", " sat ") == prompts.likelihood("the cat", "sat")


OPENS = "{% if add_generation_prompt %}<|assistant|><think>\n{% endif %}"


@pytest.mark.parametrize(
    ("answers", "refused"),
    [
        ("{{ message['content'].split('</think>')[-1] }}", True),
        ("{{ message['content'] }}", False),
        ("{% if '</think>' not in message['content'] %}<think>\n\n</think>\n\n{% endif %}{{ message['content'] }}", False),
    ],
    ids=["as DeepSeek-R1", "thoughts stay", "empty thoughts"],
)
def test_perplexity_is_refused_where_no_reference_continues_a_prompt(tmp_path: Path, answers: str, refused: bool) -> None:
    turn = "{% if message['role'] == 'assistant' %}" + answers + "{% else %}{{ message['content'] }}{% endif %}"
    template = "{% for message in messages %}<|{{ message['role'] }}|>" + turn + "<|end|>{% endfor %}" + OPENS
    prompts = PromptEncoder(write_tokenizer(tmp_path, chat_template=template), chat=None, max_length=99)
    if refused:
        with pytest.raises(BadInput, match="perplexity cannot be measured under the chat template"):
            prompts.check_likelihood()
    else:
        prompts.check_likelihood()


def test_perplexity_can_be_measured_without_a_template_and_under_a_plain_one(with_template: Any, without_template: Any) -> None:
    for tokenizer in (with_template, without_template):
        PromptEncoder(tokenizer, chat=None, max_length=2).check_likelihood()
