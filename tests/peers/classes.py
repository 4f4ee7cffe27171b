"""Why two trainers differ in the tokens or the loss of a row: by rules on tokens alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Made:
    """What a trainer makes of a row. `refused`: its words, instead of tokens. `none`: it has no such format."""

    ids: tuple[int, ...] = ()
    loss: tuple[int, ...] = ()
    refused: str = ""
    none: str = ""

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Made:
        return cls(tuple(answer.get("ids", ())), tuple(answer.get("loss", ())), answer.get("error", ""), answer.get("none", ""))


_THINKING = re.compile(r"</?think>|/no_?think|Reasoningeffortissetto.*?finalanswer\.|<\|im_start\|>system<\|im_end\|>")
EQUAL = "tokens and loss are equal"
BOTH_REFUSE = "both refuse"
NOT_COMPARED = "not compared"
CLASSES: dict[str, tuple[str, str]] = {
    "only they refuse": ("ours", "the row can be trained on"),
    "only we refuse": ("ours", "the template leaves a part of the row out, or opens a thought that the answer lacks; we say which"),
    "they put no loss on the token that ends an answer": ("ours", "a model that has not learned it does not stop"),
    "they count what stands behind the end of an answer": ("equivalent", "the model has stopped before them"),
    "we count what stands behind the end of an answer": ("equivalent", "the model has stopped before them"),
    "they count the opening of an answer": (
        "equivalent",
        "an empty block of thought stands in our prompts, and is left to the model by theirs; the name of a role is learned for nothing",
    ),
    "we count the opening of an answer": ("equivalent", "the prompt of this template does not hold it: the model has to write it"),
    "they leave the token out that ends an answer": ("ours", "a model that has not learned it does not stop"),
    "they put no loss on an assistant turn": ("ours", "all that the assistant says is learned"),
    "they put loss on what the assistant did not say": ("ours", "lossOn: all does that on wish"),
    "they put no loss on a part of an answer": ("ours", "all that the assistant says is learned"),
    "the same text, cut into other tokens": ("ours", "engines are given the prompt's own tokens, so training sees these too"),
    "they add blanks or an end token behind the last turn": ("equivalent", "the model has stopped before them"),
    "we add blanks or an end token behind the last turn": ("equivalent", "the model has stopped before them"),
    "they leave thinking switched on": (
        "equivalent",
        "ours is off where a row has no reasoning, and the saved template says so to engines",
    ),
    "they encode the arguments of calls twice": ("ours", "the model would learn backslashes"),
    "they write the row by a prompt text of their own": ("equivalent", "their prompts at inference have to repeat it"),
    "they leave a part of the row out": ("ours", "the text of the row is missing in theirs"),
    "they write the row otherwise than the template": ("ours", "engines render prompts by the template"),
}
"""Class -> who is right, and why."""


def class_of(ours: Made, theirs: Made, tokenizer: Any, said: tuple[str, ...], end: int | None) -> str:
    """`said`: texts of the row that its rendering must hold. `end`: the token that ends an answer."""
    if theirs.none:
        return NOT_COMPARED
    if ours.refused or theirs.refused:
        return BOTH_REFUSE if ours.refused and theirs.refused else "only they refuse" if theirs.refused else "only we refuse"
    if ours.ids == theirs.ids:
        return EQUAL if _counted(ours) == _counted(theirs) else _class_of_loss(ours, theirs, tokenizer, end)
    return _class_of_tokens(ours, theirs, tokenizer, said)


def _counted(made: Made) -> set[int]:
    """Places with loss. Nothing comes before the first token, so it is never predicted."""
    return {place for place, counts in enumerate(made.loss) if counts and place}


def _class_of_loss(ours: Made, theirs: Made, tokenizer: Any, end: int | None) -> str:
    more, less = _counted(theirs) - _counted(ours), _counted(ours) - _counted(theirs)

    def text(places: set[int]) -> str:
        return str(tokenizer.decode([ours.ids[place] for place in sorted(places)]))

    if end is not None and any(ours.ids[place] == end for place in less):
        turns_ours, turns_theirs = _runs(ours), _runs(theirs)
        if len(less) > 1 and turns_theirs < turns_ours:
            return "they put no loss on an assistant turn"
        return "they put no loss on the token that ends an answer"
    if not less and (not text(more).strip() or _behind_end(theirs, more, end)):
        return "they count what stands behind the end of an answer"
    if not more and (not text(less).strip() or _behind_end(ours, less, end)):
        return "we count what stands behind the end of an answer"
    if not less:
        opens = all(place + 1 in _counted(theirs) for place in more) and _runs(theirs) <= _runs(ours)
        return "they count the opening of an answer" if opens else "they put loss on what the assistant did not say"
    if not more and all(place + 1 in _counted(ours) for place in less) and _runs(theirs) >= _runs(ours):
        return "we count the opening of an answer"
    return "they put no loss on a part of an answer"


def _behind_end(made: Made, places: set[int], end: int | None) -> bool:
    """Each of these places follows a token that ends an answer, in the same stretch of loss."""
    counted = _counted(made)

    def follows(place: int) -> bool:
        while place - 1 in counted:
            place -= 1
            if made.ids[place] == end:
                return True
        return False

    return all(follows(place) for place in places)


def _runs(made: Made) -> int:
    """Stretches of tokens with loss."""
    counted = _counted(made)
    return sum(place - 1 not in counted for place in counted)


def _class_of_tokens(ours: Made, theirs: Made, tokenizer: Any, said: tuple[str, ...]) -> str:
    one, other = tokenizer.decode(list(ours.ids)), tokenizer.decode(list(theirs.ids))
    if one == other:
        return "the same text, cut into other tokens"
    ends = (*tokenizer.all_special_tokens, *tokenizer.get_added_vocab())
    for name, longer, shorter in (("they add", other, one), ("we add", one, other)):
        if longer.startswith(shorter) and not _without(longer[len(shorter) :], ends).strip():
            ends_it = name == "we add" and longer[len(shorter) :].strip() and not _ends(theirs, tokenizer)
            return "they leave the token out that ends an answer" if ends_it else f"{name} blanks or an end token behind the last turn"
    if any(text not in other for text in said if text in one):
        return "they leave a part of the row out"
    if '{\\"' in other and '{\\"' not in one:
        return "they encode the arguments of calls twice"
    if "enable_thinking" in (tokenizer.chat_template or "") and _plain(one) == _plain(other):
        return "they leave thinking switched on"
    if "### Instruction" in other:
        return "they write the row by a prompt text of their own"
    return "they write the row otherwise than the template"


def _ends(made: Made, tokenizer: Any) -> bool:
    """The last token that carries loss, blanks apart, is no plain text."""
    counted = [made.ids[place] for place in sorted(_counted(made)) if tokenizer.decode([made.ids[place]]).strip()]
    return bool(counted) and counted[-1] in {*tokenizer.all_special_ids, *tokenizer.get_added_vocab().values()}


def _without(text: str, parts: tuple[str, ...]) -> str:
    for part in parts:
        text = text.replace(part, "")
    return text


def _plain(text: str) -> str:
    """Without what templates write for thinking on and off."""
    once = _THINKING.sub("", "".join(text.split()))
    return _THINKING.sub("", once)
