"""The letter of a choice, A to Z, in an answer to a question with lettered choices."""

from __future__ import annotations

import re
from collections.abc import Sequence

_SAYS = (
    "answer|choice|option|antwort|réponse|respuesta|resposta|risposta|antwoord|svar|odpowiedź|ответ|відповідь|答案|选择|選擇|选|選|"
    "答え|正解|정답|답|đáp án|जवाब|उत्तर|الجواب|الإجابة|คำตอบ|cevap|jawaban"
)
"""Words that announce a letter. A text in another language has to end or begin with its letter, or have it in brackets."""
_MARKS = r"[\s*_`\"'“”‘’$({\[（【:：=.]"
_LETTER = r"(?:\\(?:text|mathrm|textbf)\s*\{)?\(?([A-Z])(?![A-Za-z0-9'’])(?!(?<=I)\s+[a-z])"
_IS = r"(?:\s+(?i:is|was|are|would\s+be|should\s+be|ist|est|es|è|é))?(?:是|为|為|は|은|는)?"
_ANNOUNCED = re.compile(rf"(?<![A-Za-z])(?i:{_SAYS}){_IS}{_MARKS}{{0,12}}(?:\\boxed\s*\{{)?{_LETTER}")
_WHOLE = re.compile(r"[\W_]*([A-Za-z])[\W_]*")
_BEGIN = re.compile(r"[\s*_(（【\[]{0,6}([A-Z])(?:[\s*_]{0,4}[).:：）】\]]|\s*\n)")
_BRACKETS = re.compile(r"[(（【\[]\s*([A-Z])\s*[)）】\]]|\*\*\s*([A-Z])\s*[.):]?\s*\*\*|\\boxed\s*\{\s*(?:\\text\s*\{)?\(?([A-Z])\)?\}")


def letter_in(text: str) -> str | None:
    """The letter that the text gives as its answer, in upper case. None: there is none.

    In this order: the whole text; the last letter behind a word like `answer`; the letter of the last line that is nothing else; the
    letter that the text begins with, before a bracket, point, colon or a new line; the last letter in brackets, in bold or in a box.
    """
    whole = _WHOLE.fullmatch(text)
    if whole is not None:
        return whole[1].upper()
    lines = [found[1].upper() for line in text.splitlines() if (found := _WHOLE.fullmatch(line)) is not None]
    begins = [found[1] for found in [_BEGIN.match(text)] if found is not None]
    brackets = [next(filter(None, groups)) for groups in _BRACKETS.findall(text)]
    return _last([match[1] for match in _ANNOUNCED.finditer(text)]) or _last(lines) or _last(begins) or _last(brackets)


def _last(letters: Sequence[str]) -> str | None:
    return letters[-1] if letters else None
