"""Code that does not end is interrupted in its own thread, and nothing else is."""

from __future__ import annotations

import threading
import time

import pytest

from tuneyard.api import BadInput
from tuneyard.data import chat
from tuneyard.data.chat import ChatTemplate, render
from tuneyard.data.messages import BadSample
from tuneyard.data.roles import Chat
from tuneyard.data.time_limit import TimeExceeded, within

TURNS = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}"


def _loop() -> None:
    while True:
        pass


def test_a_loop_is_interrupted_and_the_next_call_is_not() -> None:
    with pytest.raises(TimeExceeded):
        within(0.1, _loop)
    assert within(0.1, lambda: 5) == 5
    time.sleep(1)  # an interruption that came late would come now


def test_errors_pass() -> None:
    with pytest.raises(ZeroDivisionError):
        within(5, lambda: 1 / 0)


def test_other_threads_go_on() -> None:
    found: list[int] = []

    def works() -> None:
        def count() -> int:
            ends = time.monotonic() + 2
            return sum(1 for _ in iter(lambda: time.monotonic() < ends, False))

        found.append(within(60, count))

    thread = threading.Thread(target=works)
    thread.start()
    with pytest.raises(TimeExceeded):
        within(0.1, _loop)
    thread.join()
    assert found[0] > 0


def test_a_call_that_ends_at_its_limit_leaves_nothing_behind() -> None:
    """The interruption arrives within the call or not at all: 12 calls that end about when they are looked at."""
    for turn in range(12):
        try:
            within(0.0, lambda turn=turn: time.sleep(0.5 + (turn - 6) / 4000))  # type: ignore[misc]
        except TimeExceeded:
            continue
    for _ in range(1000):
        time.sleep(0)


@pytest.mark.parametrize("need_spans", [False, True])
def test_a_template_with_an_endless_loop_is_refused(monkeypatch: pytest.MonkeyPatch, need_spans: bool) -> None:
    monkeypatch.setattr(chat, "_RENDERS_WITHIN_S", 0.2)
    template = ChatTemplate(ENDLESS, "data.chatTemplate", False, True)
    with pytest.raises(BadInput, match=r"the chat template \(data.chatTemplate\) did not finish"):
        render(Chat(TURNS), template, {}, need_spans=need_spans)


def test_a_template_with_an_endless_loop_is_refused_where_there_are_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "_RENDERS_WITHIN_S", 0.2)
    with pytest.raises(BadInput, match="did not finish"):
        render(Chat(TURNS, [{"type": "function"}]), ChatTemplate(ENDLESS, "data.chatTemplate", False, True), {}, need_spans=False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{% for %}", r"the chat template \(data.chatTemplate\), line 1: "),
        ("{% include 'other.jinja' %}", "the chat template refuses it: no loader for this environment"),
        ("{{ 'a' * 10 ** 30 }}", "the chat template refuses it: "),
        ("{% for a in range(10 ** 9) %}{% endfor %}", "the chat template refuses it: Range too big"),
        ("{{ messages[7].content.nothing.more }}", "the chat template refuses it: "),
        ("{{ ''.__class__.__mro__ }}", "the chat template refuses it: access to attribute '__class__'"),
    ],
)
def test_templates_that_cannot_be_rendered_say_why(text: str, said: str) -> None:
    with pytest.raises((BadInput, BadSample), match=said):
        render(Chat(TURNS), ChatTemplate(text, "data.chatTemplate", False, True), {}, need_spans=False)
