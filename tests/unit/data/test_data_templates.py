"""What the chat templates of packages, and some of our own, make of chats: what carries loss, where it ends, and what prompts are."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders.templates import ALL, EOS, Template

from tuneyard.api import BadInput
from tuneyard.data import turn_end
from tuneyard.data.chat import choose_template, render
from tuneyard.data.messages import BadSample, message_list
from tuneyard.data.prompt_template import original, saved_template
from tuneyard.data.roles import Chat
from tuneyard.data.samples import Placed
from tuneyard.data.tokens import IGNORED, Encoder
from tuneyard.scoring.prompts import PromptEncoder

SYSTEM = {"role": "system", "content": "be brief"}
QUESTION, ANSWER = {"role": "user", "content": "the cat"}, {"role": "assistant", "content": "sat on a mat"}
AGAIN, LAST = {"role": "user", "content": "red birds"}, {"role": "assistant", "content": "sang old songs"}
THOUGHT, LAST_THOUGHT = {"reasoning_content": "one dog"}, {"reasoning_content": "cold blue lakes"}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "abcdefghi", "function": {"name": "weather", "arguments": {"city": "Graz"}}}],
}
RESULT = {"role": "tool", "name": "weather", "tool_call_id": "abcdefghi", "content": "no rain"}
TOOL = {"type": "function", "function": {"name": "weather", "description": "d", "parameters": {"type": "object", "properties": {}}}}
CHATS: dict[str, list[Any]] = {
    "single": [QUESTION, ANSWER],
    "multi": [QUESTION, ANSWER, AGAIN, LAST],
    "system": [SYSTEM, QUESTION, ANSWER],
    "thinking": [QUESTION, ANSWER | THOUGHT],
    "thinking twice": [QUESTION, ANSWER | THOUGHT, AGAIN, LAST | LAST_THOUGHT],
    "tools": [QUESTION, CALL, RESULT, LAST],
}
MUST_THINK = {"deepseek_r1_distill", "deepseekv3"}
"""Their prompts open a thought, and nothing can tell them not to."""
NEVER = {"ours-needs_documents", "ours-end_always", "ours-shouts", "vllm-template_kimi_audio"}
"""They need a variable that chats lack (documents, conversations), end prompts, or change contents."""
THINK_BESIDE_CALLS = {"gemma4", "gemma4_v2", "gemma4_v3", "gemma4_v4"}


def tokenizers(template: Template) -> list[Any]:
    """One whose end token ends turns too, and one with another end token."""
    other = template.tokenizer()
    end = turn_end(other)
    return [other] if end in (None, other.eos_token_id) else [other, template.tokenizer(other.convert_ids_to_tokens(end))]


def sample(kind: str) -> Chat:
    return Chat(message_list(CHATS[kind], "messages"), [TOOL] if kind == "tools" else None)


def behind_last_question(tokenizer: Any, ids: list[int]) -> list[int]:
    question = tokenizer.convert_tokens_to_ids("birds"), tokenizer.convert_tokens_to_ids("Ġbirds")
    return ids[max(i for i, token in enumerate(ids) if token in question) :]


def check(tokenizer: Any, chat: Chat) -> str:
    """Nothing where the chat is rendered, and rightly so; else the reason why it is not."""
    template = choose_template(tokenizer, None)
    try:
        rendered = render(chat, template, tokenizer.special_tokens_map, need_spans=True)
    except (BadSample, BadInput) as refusal:
        return str(refusal)
    counted = "".join(rendered.text[a:b] for a, b in rendered.spans)
    final = chat.messages[-1]
    assert final["content"] in counted
    assert not any(message["content"] in counted for message in chat.messages if message["role"] in ("user", "system", "tool"))
    for message in chat.messages:
        thought = message.get("reasoning_content")
        assert thought is None or thought in counted or (rendered.muted and message["content"] not in counted), (
            "trained without its thought"
        )
    end = turn_end(tokenizer)
    encoded = Encoder(tokenizer, "assistant", 4096, "error", template).encode([Placed("row", chat)])
    ids, labels = encoded.ids[0].tolist(), encoded.labels[0].tolist()
    learned, mark = tokenizer.decode([token for token in labels if token != IGNORED]), tokenizer.convert_ids_to_tokens(end or 0)
    assert learned.replace(mark, "") == counted.replace(mark, "")
    assert end is None or mark in learned.rpartition(final["content"])[2], "also where the template leaves it out behind the last turn"
    trained = Template(
        "saved", "", saved_template(template.prompts, tokenizer.special_tokens_map, thinking=rendered.reasons, tools=rendered.tools)
    )
    assert original(trained.text) == template.prompts
    tokenizer.chat_template = trained.text
    assert turn_end(tokenizer) == end
    if not chat.tools:  # score tasks take no tools yet
        asked = PromptEncoder(tokenizer, chat=True, max_length=4096).prompt(chat.messages[:-1])
        same = asked if len(chat.messages) < 4 else behind_last_question(tokenizer, asked)  # TRL's twins keep more of earlier turns
        at = [i for i in range(len(ids)) if ids[i : i + len(same)] == same]
        assert at, "an engine is asked in the words of training"
        answer = tokenizer.decode(ids[at[-1] + len(same) :])
        assert rendered.reasons or answer.lstrip().startswith(final["content"]), "and goes on with the answer"
    return ""


@pytest.mark.parametrize("template", ALL, ids=str)
def test_answers_carry_loss_with_their_end_and_go_on_from_their_prompt(template: Template) -> None:
    for tokenizer in tokenizers(template):
        own = tokenizer.chat_template
        found = {}
        for kind in CHATS:
            tokenizer.chat_template = own
            found[kind] = check(tokenizer, sample(kind))
        plain_works = template.name not in MUST_THINK and str(template) not in NEVER
        assert (not found["single"]) == plain_works, found
        assert all("chat template" in reason for reason in found.values() if reason), found
        thinks = "reasoning_content" in template.text and template.name not in THINK_BESIDE_CALLS
        assert not thinks or not found["thinking"], found


def test_enough_templates_of_each_kind() -> None:
    assert len(ALL) >= 60
    assert EOS not in "".join(template.text for template in ALL)


QWEN3 = next(template for template in ALL if str(template) == "trl-qwen3")
R1 = next(template for template in ALL if str(template) == "trl-deepseek_r1_distill")


def spans_of(template: Template, chat: Chat, **options: Any) -> list[str]:
    tokenizer = template.tokenizer()
    rendered = render(chat, choose_template(tokenizer, None), tokenizer.special_tokens_map, need_spans=True, **options)
    return [rendered.text[a:b] for a, b in rendered.spans]


def test_a_template_that_marks_the_end_of_texts_apart_keeps_the_answer_where_the_last_turn_counts() -> None:
    """Phi-3's twin marks the answer and the end of the text: the latter alone was trained with lossOn: completion, and scored."""
    phi = next(template for template in ALL if str(template) == "trl-phi3")
    assert spans_of(phi, sample("multi"), last_only=True) == ["sang old songs<|end|>\n" + EOS]


def test_contents_reach_templates_that_take_parts() -> None:
    """SmolVLM's loops over the parts of a content: of a text it wrote nothing, and the end alone was trained."""
    smolvlm = next(template for template in ALL if str(template) == "trl-smolvlm")
    assert spans_of(smolvlm, sample("single")) == [" sat on a mat<end_of_utterance>\n"]


def test_reasoning_is_written_where_the_template_looks_for_it() -> None:
    gptoss = next(template for template in ALL if str(template) == "trl-gptoss")
    for key in ("reasoning_content", "reasoning", "thinking"):
        chat = Chat(message_list([QUESTION, ANSWER | {key: "one dog"}], "messages"))
        assert "one dog<|end|>" in spans_of(gptoss, chat)[0]
    assert spans_of(R1, sample("thinking")) == ["one dog\n</think>\n\nsat on a mat<｜end▁of▁sentence｜>"]


def test_an_answer_whose_thought_is_left_out_carries_no_loss_where_others_follow_and_is_bad_where_it_is_the_last() -> None:
    strips = next(template for template in ALL if str(template) == "ours-strips_thinking")
    assert spans_of(strips, sample("thinking twice")) == ["<think>cold blue lakes</think>sang old songs<|end|>"]
    inline = Chat([QUESTION, ANSWER | {"content": "<think>one dog</think>sat on a mat"}])
    hides = Template("hides", "test", strips.text.replace("m['content'] + '<|end|>'", "m['content'].split('</think>')[-1] + '<|end|>'"))
    with pytest.raises(BadSample, match="leaves the reasoning of an answer out"):
        spans_of(hides, inline)
    with pytest.raises(BadSample, match="leaves reasoning out"):
        spans_of(next(template for template in ALL if str(template) == "trl-llama3"), sample("thinking"))


def test_prompts_of_a_model_that_was_trained_without_thoughts_open_none() -> None:
    tokenizer = QWEN3.tokenizer()
    prompt = [QUESTION]
    special = tokenizer.special_tokens_map
    tokenizer.chat_template = saved_template(QWEN3.text, special, thinking=False, tools=False)
    assert tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True).endswith("<think>\n\n</think>\n\n")
    asked = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True, enable_thinking=True)
    assert asked.endswith("assistant\n"), "who asks for thoughts gets the template's own prompt"
    assert "TRL" in choose_template(tokenizer, None).origin, "the next task knows the template again"
    assert saved_template(QWEN3.text, special, thinking=True, tools=False) == QWEN3.text


def test_an_answer_that_does_not_go_on_from_its_prompt_is_a_bad_row() -> None:
    with pytest.raises(BadSample, match=r"does not continue the prompt .*<think>") as refused:
        spans_of(R1, sample("single"))
    assert "reasoning_content" in refused.value.advice


@pytest.mark.parametrize(
    ("turn", "reason"),
    [
        (ANSWER | {"reasoning": ["a"]}, "messages[1]: reasoning is list, not text"),
        (ANSWER | {"reasoning": "a", "thinking": "b"}, "messages[1]: reasoning and thinking differ"),
        (AGAIN | {"reasoning": "a"}, "messages[1]: reasoning in a turn of the user; only turns of the assistant may have reasoning"),
    ],
)
def test_reasoning_that_is_no_text_is_a_bad_row(turn: Any, reason: str) -> None:
    with pytest.raises(BadSample) as refused:
        message_list([QUESTION, turn], "messages")
    assert str(refused.value) == reason


def test_a_system_turn_that_a_template_leaves_out_is_a_bad_row() -> None:
    left_out = next(template for template in ALL if str(template) == "ours-system_left_out")
    with pytest.raises(BadSample, match="leaves out content of the system"):
        spans_of(left_out, sample("system"))
