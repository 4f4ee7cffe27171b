"""Columns become roles: detection, what the JobSpec says, and what is wrong with a row."""

from typing import Any

import pytest

from tuneyard.api import BadInput
from tuneyard.data.canonical import Canonical, LeftOut
from tuneyard.data.messages import TEXT_ALONE, BadSample
from tuneyard.data.roles import Chat, Completion, Pair, Text, detect

TURNS = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]


def reply(content: str) -> dict[str, str]:
    return {"role": "assistant", "content": content}


def sample_of(row: dict[str, Any], **detection: Any) -> Any:
    return Canonical(detect([row], **detection))(row)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"messages": TURNS}, Chat(TURNS)),
        ({"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "hello"}]}, Chat(TURNS)),
        ({"messages": '[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]'}, Chat(TURNS)),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}, TURNS[1]]}, Chat(TURNS)),
        ({"prompt": "2+2=", "completion": "4"}, Completion("2+2=", "4")),
        ({"question": "2+2?", "answer": "4", "context": "sums"}, Completion("2+2?", "4")),
        ({"instruction": "Add", "input": "2 2", "output": "4"}, Completion("Add\n\n2 2", "4")),
        ({"instruction": "Say 4", "input": "", "output": "4"}, Completion("Say 4", "4")),
        ({"prompt": TURNS[:1], "completion": TURNS[1:]}, Chat(TURNS, context=1)),
        ({"prompt": "2+2?", "chosen": "4", "rejected": "5"}, Pair("2+2?", "4", "5")),
        (
            {"chosen": "\n\nHuman: 2+2?\n\nAssistant: 4", "rejected": "\n\nHuman: 2+2?\n\nAssistant: 5"},
            Pair("\n\nHuman: 2+2?\n\nAssistant:", " 4", " 5"),
        ),
        (
            {"chosen": TURNS, "rejected": [TURNS[0], {"role": "assistant", "content": "go away"}]},
            Pair(TURNS[:1], TURNS[1:], [{"role": "assistant", "content": "go away"}]),
        ),
        ({"question": "2+2?", "reply": "4", "id": 7}, Completion("2+2?", "4")),
        ({"input": "2+2?", "target": "4"}, Completion("2+2?", "4")),
        ({"question": "2+2?", "answer": 4}, Completion("2+2?", "4")),
        ({"question": "1/8?", "answer": 0.125}, Completion("1/8?", "0.125")),
        ({"text": "once upon a time"}, Text("once upon a time")),
        ({"story": "once upon a time"}, Text("once upon a time")),
    ],
)
def test_formats_are_detected(row: dict[str, Any], expected: Any) -> None:
    assert sample_of(row) == expected


def test_a_given_mapping_wins() -> None:
    row = {"prompt": "old", "completion": "old", "q": "2+2?", "a": "4"}
    assert sample_of(row, columns={"prompt": "q", "completion": "a"}) == Completion("2+2?", "4")


def test_a_mapping_may_name_one_role_and_leave_the_other_to_detection() -> None:
    assert sample_of({"q": "2+2?", "answer": "4"}, columns={"prompt": "q"}) == Completion("2+2?", "4")


def test_a_mapped_column_that_is_missing_names_the_nearest() -> None:
    with pytest.raises(BadInput, match=r"no column questoin .*columns found: question, answer") as refused:
        detect([{"question": "", "answer": ""}], columns={"prompt": "questoin"})
    assert refused.value.next_step == "did you mean question?"


def test_a_format_that_does_not_fit_lists_what_was_found_and_expected() -> None:
    with pytest.raises(BadInput, match=r"not of format chat; columns found: prompt, completion; expected chat: messages/conversations"):
        detect([{"prompt": "a", "completion": "b"}], format="chat")


def test_columns_that_mean_nothing_are_refused() -> None:
    with pytest.raises(BadInput, match="of no known format; columns found: id, value"):
        detect([{"id": 1, "value": 2.5}])


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"messages": TURNS[:1]}, "no assistant turn: nothing to learn from"),
        ({"messages": []}, "messages is empty"),
        ({"messages": None}, "messages is missing"),
        ({"messages": 5}, "messages is int, not a list of messages"),
        ({"messages": [*TURNS, "bye"]}, "messages[2] is str, not a message"),
        ({"messages": [TURNS[0], {"role": "assistant", "content": None}]}, "messages[1] has no content"),
        ({"messages": [TURNS[0], {"role": "assistant", "content": "  "}]}, "messages[1]: the assistant says nothing"),
        ({"messages": [{"content": "hi"}]}, "messages[0] has no role"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
            f"messages[0] holds something other than text (image); {TEXT_ALONE}",
        ),
    ],
)
def test_bad_chats_say_what_is_wrong(row: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadSample) as bad:
        Canonical(detect([{"messages": TURNS}]))(row)
    assert str(bad.value) == reason


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"prompt": "a", "completion": ""}, "completion is empty"),
        ({"prompt": None, "completion": "b"}, "prompt is missing"),
        ({"prompt": "a", "completion": [4]}, "completion is list, not text"),
        ({"prompt": "a", "completion": True}, "completion is bool, not text"),
        ({"prompt": "a", "completion": float("nan")}, "completion is missing"),
    ],
)
def test_bad_completions_say_what_is_wrong(row: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadSample) as bad:
        Canonical(detect([{"prompt": "a", "completion": "b"}]))(row)
    assert str(bad.value) == reason


def test_equal_answers_are_no_preference() -> None:
    with pytest.raises(BadSample, match="chosen and rejected are the same"):
        sample_of({"prompt": "a", "chosen": "b", "rejected": "b"})


def test_a_chat_without_an_assistant_is_fine_where_all_tokens_count() -> None:
    assert Canonical(detect([{"messages": TURNS}]), needs_assistant=False)({"messages": TURNS[:1]}) == Chat(TURNS[:1])


SYSTEM = {"role": "system", "content": "be brief"}


@pytest.mark.parametrize("column", ["system", "system_prompt"])
def test_a_system_column_becomes_the_first_turn(column: str) -> None:
    assert sample_of({"conversations": TURNS, column: "be brief"}) == Chat([SYSTEM, *TURNS])
    assert sample_of({"messages": TURNS, column: ""}) == Chat(TURNS)
    assert sample_of({"messages": [SYSTEM, *TURNS], column: "be long"}) == Chat([SYSTEM, *TURNS])


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"question": "2+2?", "answer": "4", "context": "sums"}, "column context is not used"),
        (
            {"instruction": "Add", "input": "2", "output": "4", "history": "a", "system": "s"},
            "columns history, system are not used",
        ),
        ({"messages": TURNS, "documents": ["a"], "id": 1}, "column documents is not used"),
        ({"messages": TURNS, "system": "s", "tools": [], "history": []}, None),
    ],
)
def test_columns_that_change_the_meaning_are_named_where_they_are_not_used(row: dict[str, Any], said: str | None) -> None:
    note = detect([row]).note()
    assert note is None if said is None else said in str(note)


MUTED = TURNS[1] | {"weight": 0}


def test_turns_of_weight_0_are_kept_and_muted() -> None:
    assert sample_of({"messages": [TURNS[0], TURNS[1] | {"weight": 0.0}, *TURNS]}) == Chat([TURNS[0], MUTED, *TURNS])
    assert sample_of({"messages": [TURNS[0], TURNS[1] | {"train": False}, *TURNS]}) == Chat([TURNS[0], MUTED, *TURNS])
    assert sample_of({"messages": [TURNS[0] | {"weight": None}, TURNS[1] | {"weight": 1}]}) == Chat(TURNS)


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([TURNS[0], MUTED], "every assistant turn has weight 0"),
        ([TURNS[0], TURNS[1] | {"weight": 0.5}], "messages[1]: weight is 0.5, neither 0 nor 1"),
        ([TURNS[0], TURNS[1] | {"weight": "0"}], "messages[1]: weight is '0', neither 0 nor 1"),
    ],
)
def test_weights_that_say_nothing_are_refused(messages: list[Any], reason: str) -> None:
    with pytest.raises(BadSample) as refused:
        sample_of({"messages": messages})
    assert str(refused.value) == reason


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"instruction": "Add", "input": "2 2", "output": "4"}, Chat([{"role": "user", "content": "Add\n\n2 2"}, reply("4")], context=1)),
        (
            {"prompt": "Add 2 2", "completion": " 4", "system": "be brief"},
            Chat([SYSTEM, {"role": "user", "content": "Add 2 2"}, reply("4")], context=2),
        ),
        ({"prompt": "2+2?", "chosen": "4", "rejected": "5"}, Pair([{"role": "user", "content": "2+2?"}], [reply("4")], [reply("5")])),
        ({"messages": TURNS}, Chat(TURNS)),
    ],
)
def test_pairs_of_texts_become_chats_on_wish(row: dict[str, Any], expected: Any) -> None:
    assert sample_of(row, chat=True) == expected
    assert detect([row], chat=True).as_messages


def test_plain_text_does_not_become_a_chat() -> None:
    with pytest.raises(BadInput, match=r"data\.chat is true, and rows are plain text"):
        detect([{"text": "once"}], chat=True)
    with pytest.raises(BadInput, match="of no known format"):
        detect([{"story": "once"}], chat=True)


@pytest.mark.parametrize("wanted", [True, "true", "True"])
@pytest.mark.parametrize("unwanted", [False, "false"])
def test_answers_that_are_labelled_false_are_left_out(wanted: Any, unwanted: Any) -> None:
    rows = [{"prompt": "2+2?", "completion": "4", "label": wanted}, {"prompt": "2+2?", "completion": "5", "label": unwanted}]
    roles = detect(rows)
    assert roles.why == "columns prompt, completion, label: KTO's labels"
    assert Canonical(roles)(rows[0]) == Completion("2+2?", "4")
    with pytest.raises(LeftOut, match="label is false"):
        Canonical(roles)(rows[1])


def test_a_label_that_is_no_judgement_is_named_and_not_used() -> None:
    roles = detect([{"prompt": "2+2?", "completion": "4", "label": 3}])
    assert "label" not in roles.columns
    assert "column label is not used" in str(roles.note())


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "hello"}]}, "ShareGPT's names"),
        ({"instruction": "Add", "input": "2 2", "output": "4"}, "Alpaca's"),
        ({"chosen": "\n\nHuman: 2+2?\n\nAssistant: 4", "rejected": "\n\nHuman: 2+2?\n\nAssistant: 5"}, "whole dialogues, as HH's"),
    ],
)
def test_variants_are_known_by_their_names(row: dict[str, Any], name: str) -> None:
    assert detect([row]).why.endswith(f": {name}")
