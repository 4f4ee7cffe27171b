"""What a model says to itself before it answers: the text between `<think>` and `</think>`, apart from the answer.

These are the marks of DeepSeek-R1, Qwen3, QwQ, GLM, Granite and others. Some chat templates open the thoughts themselves, so that the
model writes their end only.
"""

from __future__ import annotations

OPEN, CLOSE = "<think>", "</think>"


def opens_thoughts(prompt: str) -> bool:
    """Whether a prompt ends in the middle of thoughts. `prompt`: its text, or the end of it."""
    return prompt.rstrip().endswith(OPEN)


def answer_apart(text: str, *, opened: bool | None, cut_off: bool) -> tuple[str, str | None]:
    """The answer, and the thoughts before it. None: there are none.

    `opened`: whether the prompt has opened the thoughts; None: not known, then a text with an end of thoughts and no beginning before it
    has some. `cut_off`: the text did not end by itself. Thoughts without an end leave an empty answer. A text without an end of thoughts
    that did end by itself is an answer, although the prompt has opened thoughts: the model was trained to give none.
    """
    begins = text.lstrip().startswith(OPEN)
    if not begins and opened is None:
        head, end, _ = text.partition(CLOSE)
        opened = bool(end) and OPEN not in head
    if not begins and not (opened and (CLOSE in text or cut_off)):
        return text, None
    thoughts: list[str] = []
    rest = text
    while begins or not thoughts:
        thought, _, rest = rest.lstrip().removeprefix(OPEN).partition(CLOSE)
        thoughts.append(thought.strip())
        begins = rest.lstrip().startswith(OPEN)
    return rest.lstrip(), "\n\n".join(filter(None, thoughts))
