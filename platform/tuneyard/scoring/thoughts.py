"""What a model says to itself before it answers: the text between `<think>` and `</think>`, apart from the answer.

These are the marks of DeepSeek-R1, Qwen3, QwQ, GLM, Granite and others. Some chat templates open the thoughts themselves, so that the
model writes their end only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuneyard.data import ScoreRow

OPEN, CLOSE = "<think>", "</think>"
_OPENS = re.compile(rf"[\s\ufeff]*+({OPEN})?")


def opens_thoughts(prompt: str) -> bool:
    """Whether a prompt ends in the middle of thoughts. `prompt`: its text, or the end of it."""
    return prompt.rstrip().endswith(OPEN)


def without_thoughts(text: str) -> str:
    """A reference, or an answer that someone else has recorded, without thoughts at its beginning. One that holds nothing else stays."""
    answer, _ = answer_apart(text, opened=False, cut_off=False)
    return answer or text


def without_thoughts_of(row: ScoreRow) -> ScoreRow:
    """A row as people and judges see it: its references and recorded answers without thoughts."""
    seen = row.copy()
    seen["references"] = tuple(map(without_thoughts, row["references"]))
    seen["answer"] = without_thoughts(row["answer"])
    if "against" in row:
        seen["against"] = without_thoughts(row["against"])
    return seen


def answer_apart(text: str, *, opened: bool | None, cut_off: bool) -> tuple[str, str | None]:
    """The answer, and the thoughts before it. None: there are none.

    `opened`: whether the prompt has opened the thoughts; None: not known, then a text with an end of thoughts and no beginning before it
    has some. `cut_off`: the text did not end by itself: it reached a limit, or a stop text. Thoughts without an end leave an empty answer.
    A text without an end of thoughts that did end by itself is an answer, although the prompt has opened thoughts: the model was trained to
    give none.
    """
    opening = _OPENS.match(text)
    begins = opening is not None and opening[1] is not None
    if not begins and opened is None:
        head, close, _ = text.partition(CLOSE)
        opened = bool(close) and OPEN not in head
    if not begins and not (opened and (CLOSE in text or cut_off)):
        return text, None
    thoughts: list[str] = []
    place = 0
    while True:
        found = _OPENS.match(text, place)
        assert found is not None
        if thoughts and not found[1]:
            return text[found.end() :], "\n\n".join(filter(None, thoughts))
        end = text.find(CLOSE, found.end())
        thoughts.append(text[found.end() : end if end >= 0 else len(text)].strip())
        place = end + len(CLOSE) if end >= 0 else len(text)
