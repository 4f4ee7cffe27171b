"""Assistant turns of weight 0 are part of the dialogue and carry no loss."""

from __future__ import annotations

from typing import Any

import pytest

from tuneyard.data.chat import DEFAULT_TEMPLATE, ChatTemplate, render
from tuneyard.data.messages import BadSample, message_list
from tuneyard.data.roles import Chat

SPECIAL = {"eos_token": "</s>"}
PREFIXES = (
    "{% for m in messages %}{{ '<' + m.role + '>' + m.content + eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def turns(*weights: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number, weight in enumerate(weights):
        answer = {"role": "assistant", "content": f"answer {number}"} | ({} if weight else {"weight": 0})
        found += [{"role": "user", "content": "q"}, answer]
    return found


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize(
    ("weights", "last_only", "learnt"),
    [
        ((1, 1), False, [0, 1]),
        ((0, 1), False, [1]),
        ((1, 0), False, [0]),
        ((1, 0, 1), False, [0, 2]),
        ((0, 1), True, [1]),
        ((1, 0), True, []),
    ],
)
def test_spans_are_those_of_weighted_turns(weights: tuple[int, ...], last_only: bool, learnt: list[int], marked: bool) -> None:
    template = ChatTemplate(DEFAULT_TEMPLATE if marked else PREFIXES, "a test's", marked, False)
    rendered = render(Chat(turns(*weights)), template, SPECIAL, need_spans=True, last_only=last_only)
    assert [rendered.text[start:end] for start, end in rendered.spans] == [f"answer {number}</s>" for number in learnt]
    assert all(f"answer {number}" in rendered.text for number in range(len(weights)))


@pytest.mark.parametrize(
    ("marks", "weight"),
    [
        ({"weight": None, "train": False}, 0),
        ({"weight": 0, "train": None}, 0),
        ({"weight": 1, "train": True}, None),
        ({"weight": None, "train": None}, None),
    ],
)
def test_either_mark_of_a_turn_counts(marks: dict[str, Any], weight: int | None) -> None:
    (message,) = message_list([{"role": "assistant", "content": "a", **marks}], "messages")
    assert message.get("weight") == weight


def test_marks_of_a_turn_must_not_contradict_each_other() -> None:
    with pytest.raises(BadSample, match="weight 1 and train False contradict each other"):
        message_list([{"role": "assistant", "content": "a", "weight": 1, "train": False}], "messages")
