"""Prompts made of the columns of a row: text with places for columns, such as `Summarize: {article}`, and templates that have a name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from string import Formatter

PROMPT, INPUT = "prompt", "input"
"""Places for the roles of these names, whatever their columns are called. All other places are columns or paths."""


@dataclass(frozen=True)
class PromptTemplate:
    """`with_input`: the text for rows that have an input; empty: the same text, with the input behind the prompt."""

    text: str
    with_input: str = ""

    @property
    def places(self) -> tuple[str, ...]:
        """The names between braces, each once."""
        return tuple(dict.fromkeys(name for text in (self.text, self.with_input) for name in _names(text)))

    def filled(self, values: Mapping[str, str]) -> str:
        """The prompt of a row. `values`: text by place; an `input` without a place of its own follows the prompt."""
        given = values.get(INPUT, "").strip()
        if INPUT not in self.places and given:
            values = {**values, PROMPT: f"{values[PROMPT]}\n\n{values[INPUT]}"}
        text = self.with_input if self.with_input and given else self.text
        return "".join(literal + (values[name] if name is not None else "") for literal, name in _pieces(text))


_ALPACA = "Write a response that appropriately completes the request.\n\n### Instruction:\n{prompt}\n\n"
NAMED: Mapping[str, PromptTemplate] = {
    "response": PromptTemplate("{prompt}\n\n### Response:\n"),
    "alpaca": PromptTemplate(
        f"Below is an instruction that describes a task. {_ALPACA}### Response:\n",
        f"Below is an instruction that describes a task, paired with an input that provides further context. {_ALPACA}"
        "### Input:\n{input}\n\n### Response:\n",
    ),
}
"""Templates by the name that `data.template` takes. Formats with several turns (ChatML, Vicuna) are chat templates: data.chat."""


@lru_cache(maxsize=64)
def prompt_template(given: str) -> PromptTemplate:
    """The template of this name, or with this text. Raises ValueError for text without a place, or with a brace that has no partner."""
    if given in NAMED:
        return NAMED[given]
    found = PromptTemplate(given)
    if not found.places:
        raise ValueError(f"{given!r} is no template: neither a name ({', '.join(NAMED)}) nor a text with a column in braces: {{question}}")
    return found


def of_prompt(given: str) -> str:
    """The same template with `{prompt}` in its place, if it has one place alone: any text can fill it, whatever its column is called."""
    places = prompt_template(given).places
    if len(places) != 1:
        return given
    pieces = _pieces(given) if given not in NAMED else ()
    made = "".join(literal.replace("{", "{{").replace("}", "}}") + ("{prompt}" if name is not None else "") for literal, name in pieces)
    return made or given


def _names(text: str) -> list[str]:
    return [name for _, name in _pieces(text) if name is not None]


@lru_cache(maxsize=256)
def _pieces(text: str) -> tuple[tuple[str, str | None], ...]:
    """Literal text with the place behind it; None where no place follows."""
    try:
        parsed = list(Formatter().parse(text))
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}; write {{{{ and }}}} for braces that are text") from error
    for _, name, layout, conversion in parsed:
        if name is not None and (not name.strip() or layout or conversion):
            raise ValueError(f"{text!r}: a place holds the name of a column alone, such as {{question}}; write {{{{ and }}}} for braces")
    return tuple((literal, name) for literal, name, _, _ in parsed)
