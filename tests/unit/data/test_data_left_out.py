"""What a chat template leaves out, or takes for the assistant's, is a bad row: it would be learned as another chat."""

from __future__ import annotations

from typing import Any

import pytest

from tuneyard.data.chat import ChatTemplate, render
from tuneyard.data.messages import BadSample
from tuneyard.data.roles import Chat
from tuneyard.data.tool_calls import Message

SPECIAL = {"eos_token": "<end>"}


def said(*turns: str) -> list[Message]:
    """Turns of a user and an assistant."""
    return [{"role": "user" if number % 2 == 0 else "assistant", "content": turn} for number, turn in enumerate(turns)]


def answering(*names: str, content: str = "") -> Message:
    calls = [{"id": f"abcdefgh{n}", "type": "function", "function": {"name": name, "arguments": {}}} for n, name in enumerate(names)]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def rendered(template: str, messages: list[Message], **more: Any) -> Any:
    wants = {"need_spans": True} | more
    return render(Chat(messages), ChatTemplate(template, "the test's", "{% generation" in template, False), SPECIAL, **wants)


def each(content: str, *, loop: str = "messages") -> str:
    """A template with marks that writes a content of each message so."""
    return (
        f"{{% for m in {loop} %}}<{{{{ m['role'] }}}}>{{% if m['role'] == 'assistant' %}}"
        f"{{% generation %}}{{{{ {content} }}}}<end>{{% endgeneration %}}{{% else %}}{{{{ {content} }}}}{{% endif %}}{{% endfor %}}"
    )


SYSTEM = {"role": "system", "content": "be nice"}
LONG = "A first line of an answer\nand a second one that is longer than forty characters"


@pytest.mark.parametrize(
    ("template", "messages", "reason"),
    [
        pytest.param(each("m['content'][:40]"), said("q", LONG), "leaves out content of the assistant", id="cut"),
        pytest.param(
            each("m['content'].split('\n')[0]"), said("q", LONG), "leaves out content of the assistant", id="the first line alone"
        ),
        pytest.param(
            each("m['content']", loop="(messages if messages[0]['role'] != 'system' else messages[1:])"),
            [SYSTEM, *said("please be nice", "ok")],
            "leaves out content of the system",
            id="its text stands in the question too",
        ),
        pytest.param(
            each("m['content']", loop="messages[-2:]"),
            said("ok", "ok", "ok?", "ok"),
            "leaves out content of the user",
            id="earlier short turns",
        ),
        pytest.param(
            each("m['content']", loop="(messages if messages[-2]['role'] != 'tool' else messages[:2] + messages[-2:])"),
            [
                *said("q"),
                answering("f", "g"),
                {"role": "tool", "name": "f", "content": "one"},
                {"role": "tool", "name": "g", "content": "two"},
                *said("", "done")[1:],
            ],
            "leaves tool calls out",
            id="calls",
        ),
        pytest.param(
            "{% generation %}{% for m in messages %}{{ m['content'] }}<end>{% endfor %}{% endgeneration %}",
            said("question", "answer"),
            "marks content of the user as the assistant's",
            id="one mark around all",
        ),
        pytest.param(
            "{# {% generation %} #}{% for m in messages %}{{ m['content'] }}{% endfor %}",
            said("q", "a"),
            "marks no answer with {% generation %}",
            id="a mark in a comment",
        ),
    ],
)
def test_a_chat_that_would_be_learned_as_another_is_a_bad_row(template: str, messages: list[Message], reason: str) -> None:
    with pytest.raises(BadSample, match=reason.replace("{", r"\{").replace("}", r"\}")):
        rendered(template, messages)


@pytest.mark.parametrize(
    "messages",
    [
        said("  q with blanks \n", " a\n"),
        said("first\n  second", "first line  \n\n  second line"),
        [{"role": "system", "content": "be nice /no_think\nand short"}, *said("q", "a")],
        said("q", "a", "q", "a"),
    ],
)
def test_templates_may_trim_and_take_switches_out(messages: list[Message]) -> None:
    lines = "m['content'].replace('/no_think', '').split('\n') | map('trim') | join('\n') | trim"
    assert rendered(each(lines), messages).spans


CALLS = (
    "{% for m in messages %}<{{ m['role'] }}>{% if m['role'] == 'assistant' %}{% generation %}BODY<end>{% endgeneration %}"
    "{% else %}{{ m['content'] }}{% endif %}{% endfor %}"
)
ALL_CALLS = "{% for c in m.tool_calls or [] %}{{ c.function.name ~ (c.function.arguments | tojson) }}{% endfor %}"


@pytest.mark.parametrize(
    ("body", "turn", "reason"),
    [
        ("{{ m['content'] }}" + ALL_CALLS, answering("f", "g", content="look"), None),
        ("{% if m['content'] %}{{ m['content'] }}{% else %}" + ALL_CALLS + "{% endif %}", answering("f"), None),
        (
            "{% if m['content'] %}{{ m['content'] }}{% else %}" + ALL_CALLS + "{% endif %}",
            answering("f", content="look"),
            "tool calls beside a content",
        ),
        (
            "{{ m['content'] }}" + ALL_CALLS.replace("in m.tool_calls or []", "in (m.tool_calls or [])[:1]"),
            answering("f", "g"),
            "some of several tool calls in a turn",
        ),
        ("{{ m['content'] }}" + ALL_CALLS.replace("c.function.name ~ ", ""), answering("f"), "names of tool calls"),
    ],
)
def test_a_call_that_would_be_left_out_is_named(body: str, turn: Message, reason: str | None) -> None:
    template = CALLS.replace("BODY", body)
    if reason is None:
        assert rendered(template, [*said("q"), turn]).spans
        return
    with pytest.raises(BadSample, match=f"leaves {reason} out"):
        rendered(template, [*said("q"), turn])


def test_of_several_answers_of_tools_none_may_be_missing() -> None:
    template = CALLS.replace("BODY", "{{ m['content'] }}" + ALL_CALLS).replace(
        "{% else %}{{ m['content'] }}", "{% elif m['role'] != 'tool' or loop.nextitem['role'] != 'tool' %}{{ m['content'] }}"
    )
    results = [{"role": "tool", "name": name, "content": f"result of {name}"} for name in "fg"]
    with pytest.raises(BadSample, match="leaves out content of the tool"):
        rendered(template, [*said("q"), answering("f", "g"), *results, *said("", "done")[1:]])


def test_single_turns_are_told_apart_or_refused() -> None:
    apart = CALLS.replace("BODY", "{{ m['content'] }}").replace(
        "<end>{% endgeneration %}", "{% endgeneration %}{% generation %}<end>{% endgeneration %}"
    )
    both = said("q", "one", "q", "two")
    assert [rendered(apart, both).text[start:end] for start, end in rendered(apart, both).spans] == ["one<end>", "two<end>"]
    neighbours = [*said("q", "one"), {"role": "assistant", "content": "two"}]
    one_each = (
        "{% for m in messages %}{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] }}{% endgeneration %}"
        "{% else %}{{ m['content'] }}{% endif %}{% endfor %}"
    )
    found = rendered(one_each, neighbours, last_only=True)
    assert [found.text[start:end] for start, end in found.spans] == ["two"]


def test_what_the_answer_begins_with_is_learned_though_the_prompt_ends_with_it() -> None:
    template = (
        "{% for m in messages %}{{ 'A: ' if m['role'] == 'assistant' else 'Q: ' }}{{ m['content'] }}<end>{% endfor %}"
        "{% if add_generation_prompt %}A: {% endif %}"
    )
    found = rendered(template, said("q", "A: yes"))
    assert [found.text[start:end] for start, end in found.spans] == ["A: yes<end>"]
