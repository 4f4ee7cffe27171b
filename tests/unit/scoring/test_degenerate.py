"""Empty outputs and loops are found; what only looks like them is left alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.scoring.degenerate import ends_in_loop, is_empty


@pytest.mark.parametrize("text", ["", " ", "\n\t ", "\u3000"])
def test_nothing_to_see_is_empty(text: str) -> None:
    assert is_empty(text)


@pytest.mark.parametrize(
    "text",
    [
        "The answer is the answer is the answer is",
        "I do not know. I do not know. I do not kn. I do not know. I do not know. I do not know. I do",
        "self.assertEqual(a, b)\n" * 20 + "self.assert",
        "no no no no no no",
        "我不知道。我不知道。我不知道。",
        "ไม่รู้ไม่รู้ไม่รู้",
        "begin " + "\n".join(["x = x + 1"] * 40),
    ],
)
def test_a_loop_at_the_end_is_found(text: str) -> None:
    assert ends_in_loop(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yes",
        "no no no",
        "Wait ... and then ...",
        "return self",
        "1, 2, 3, 4, 5, 6, 7, 8",
        "row, row, row your boat, gently down the stream",
        "a loop a loop a loop, and then an end to it",
        "hahaha!!!",
        "def f(x):\n    return x\n\ndef g(x):\n    return x\n",
        '{"a": 1, "b": 2, "c": 3}',
    ],
)
def test_what_only_looks_like_a_loop_is_none(text: str) -> None:
    assert not ends_in_loop(text)


@given(
    start=st.text(max_size=40),
    phrase=st.lists(st.sampled_from(["alpha", "beta", "gamma"]), min_size=2, max_size=20),
    times=st.integers(3, 9),
)
def test_whatever_came_before(start: str, phrase: list[str], times: int) -> None:
    assert ends_in_loop(f"{start} {' '.join(phrase * times)}")


def test_a_very_long_output_is_no_trouble() -> None:
    assert not ends_in_loop(" ".join(map(str, range(100_000))))
    assert not ends_in_loop("a b " * 50_000 + "c")
