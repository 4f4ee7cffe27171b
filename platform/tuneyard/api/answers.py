"""Fields of a score task that say what an answer is and how metrics compare it: its place in the output, choices, embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from tuneyard.api.base import Fields, located
from tuneyard.api.endpoint import Endpoint
from tuneyard.metrics import METRICS, Ways, needing
from tuneyard.metrics.answers import FORMS, IGNORED, by_path, by_pattern
from tuneyard.metrics.bleu import TOKENIZERS
from tuneyard.metrics.pass_at import RIGHT

if TYPE_CHECKING:
    from tuneyard.api.score import ScoreTask

    Ignored = str
    AnswerForm = str
    Tokenizer = str
    RightBy = str
else:
    Ignored = Literal[tuple(IGNORED)]
    AnswerForm = Literal[tuple(FORMS)]
    Tokenizer = Literal["auto", *TOKENIZERS]
    RightBy = Literal[tuple(RIGHT)]
Pattern = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
ChoiceText = Annotated[str, StringConstraints(max_length=20_000)]
MOST_CHOICES = 26
"""Choices have letters from A to Z."""


class AnswerAt(Fields):
    """The place of the answer in an output."""

    first: Pattern | None = Field(
        default=None,
        description="regular expression: the answer is its first match, or the first group of it that holds a text; "
        "exactly one of first, last and json",
    )
    last: Pattern | None = Field(default=None, description="the same of its last match; exactly one of first, last and json")
    json_path: Pattern | None = Field(
        default=None,
        alias="json",
        description="path of a value in the JSON that the output is or holds, such as result.steps[0].answer; "
        "exactly one of first, last and json",
    )

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        given = [name for name in ("first", "last", "json") if getattr(self, "json_path" if name == "json" else name) is not None]
        if len(given) != 1:
            raise ValueError("give exactly one of first, last and json")
        try:
            if self.json_path is not None:
                by_path(self.json_path)
            else:
                by_pattern(self.first or self.last or "", last=self.last is not None)
        except ValueError as error:
            raise located(str(error), given[0]) from error
        return self


class Bleu(Fields):
    """Words of the metric bleu."""

    tokenize: Tokenizer = Field(
        default="auto",
        description="tokenizer of sacrebleu; auto: 13a; for references mostly in scripts without blanks between words, zh for Chinese "
        "and else char. ja-mecab, ko-mecab and flores200 need packages or files that workers must have",
    )


class Numeric(Fields):
    """How far the number of an answer may be from that of the reference, for the metric numeric. The larger of the two holds."""

    tolerance: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="distance, in the unit of the numbers")
    relative: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="distance as a share of the reference's number")


class PassAt(Fields):
    """The metric pass_at_k."""

    k: int = Field(ge=1, description="samples of which one has to be right; at most generation.samples")
    by: RightBy = Field(default="exact_match", description="the metric that says whether a sample is right")


class Choices(Fields):
    """Choices of which the model takes the likeliest. It writes nothing."""

    texts: list[ChoiceText] | None = Field(
        default=None, min_length=2, max_length=MOST_CHOICES, description="the choices of every row; exactly one of texts and column"
    )
    column: str | None = Field(
        default=None,
        min_length=1,
        max_length=512,
        description="column with the choices of a row: a list of texts, or a group with the lists text and label; exactly one of texts "
        "and column",
    )
    by: Literal["text", "letter"] = Field(
        default="text",
        description="text: the likelihood of each choice's text behind the prompt; letter: choices with letters are put under the prompt, "
        "and their letters have likelihoods",
    )
    delimiter: str | None = Field(
        default=None, max_length=16, description="text between prompt and choice; default: a blank behind plain prompts, nothing in chats"
    )
    first_number: Literal[0, 1] = Field(default=0, description="number of the first choice, where references are numbers of choices")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.texts is None) == (self.column is None):
            raise ValueError("give exactly one of texts and column")
        for place, text in enumerate(self.texts or ()):
            if not text.strip():
                raise located("a choice is empty: give each a text", "texts", place)
            if text.strip() in [other.strip() for other in (self.texts or ())[:place]]:
                raise located(f"two choices are {text.strip()[:80]!r}: give each choice once", "texts", place)
        return self


class Embedding(Fields):
    """The model of sentence embeddings that the metric embedding_similarity compares by."""

    model: str | None = Field(
        default=None,
        min_length=1,
        max_length=4096,
        description="Hugging Face name, local folder, or URI of an encoder's folder, in the layout of sentence-transformers or plain; "
        "default: endpoint names one",
    )
    revision: str | None = Field(
        default=None, description="commit, tag or branch on Hugging Face; pin it for jobs that must repeat; default: the newest"
    )
    endpoint: Endpoint | None = Field(
        default=None,
        description="a server with OpenAI's API whose URL/embeddings embeds the texts; default: model, on the CPU of each worker",
    )

    @model_validator(mode="after")
    def _names_one_model(self) -> Self:
        if (self.model is None) == (self.endpoint is None):
            raise ValueError("name a model or an endpoint, which has one of its own: not both, and not neither")
        if self.endpoint is not None and self.revision is not None:
            raise located("the endpoint has its own model: leave revision out", "revision")
        return self


_SETTINGS = {"ignore": "exact_match", "bleu": "bleu", "numeric": "numeric", "pass_at": "pass_at_k"}
"""Field -> the metric that users mean by it. Other metrics may read it too."""


def check_answers(task: ScoreTask) -> None:
    """Raises an error for settings that no metric of the task reads, and for metrics that lack theirs."""
    read = {name for metric in task.metrics for name in METRICS[metric].settings}
    for field, metric in _SETTINGS.items():
        alias = type(task).model_fields[field].alias or field
        if field in task.model_fields_set and getattr(task, field) and alias not in read:
            raise located(f"no metric uses it: add {metric} to metrics, or leave {alias} out", alias)
    _check_samples(task)
    _check_choices(task)


def _check_samples(task: ScoreTask) -> None:
    if "pass_at_k" in task.metrics and task.pass_at is None:
        raise located("pass_at_k needs the number of samples that it draws: give passAt.k", "passAt")
    samples = task.generation.samples
    if task.pass_at is not None and task.pass_at.k > samples:
        raise located(f"passAt.k is {task.pass_at.k}, above generation.samples {samples}: raise generation.samples", "passAt", "k")
    if samples > 1 and task.judge is not None:
        raise located("a judge answers once: leave samples out", "generation", "samples")
    if samples > 1 and task.generation.temperature == 0:
        raise located("at temperature 0 all samples are the same: give a temperature above 0", "generation", "samples")
    if samples > 1 and "pass_at_k" not in task.metrics:
        raise located("only pass_at_k reads more than one sample: add it to metrics, or leave samples out", "generation", "samples")


def _check_choices(task: ScoreTask) -> None:
    known = [METRICS[name] for name in task.metrics]
    chosen = needing("choices", known)
    if task.choices is None:
        if chosen:
            raise located(f"give choices.column or choices.texts, which {' and '.join(chosen)} compare", "choices")
        return
    others = [name for name in (*task.metrics, *task.own_metrics) if name not in chosen]
    if others:
        raise located(f"with choices the model writes nothing: leave {', '.join(others)} out", "metrics")
    if task.answer is not None:
        raise located("with choices the model writes nothing: leave answer out", "answer")
    if task.judge is not None:
        raise located("a judge writes its scores: leave choices out", "choices")
    if task.data.reference is None:
        raise located("the right choice is not known: set data.reference to the column with its text, letter or number", "choices")
    column = task.choices.column
    if column is not None and task.data.keep and column not in task.data.keep:
        raise located(f"choices.column {column} is not in data.keep: add it, or leave keep out", "data", "keep")


def ways_of(task: ScoreTask, tokenizer: str) -> Ways:
    """How the values of the task's rows are computed. `tokenizer`: of BLEU, with `auto` resolved."""
    return Ways(
        ignore=frozenset(task.ignore),
        bleu=tokenizer,
        tolerance=task.numeric.tolerance,
        relative_tolerance=task.numeric.relative,
        k=task.pass_at.k if task.pass_at is not None else 1,
        right=task.pass_at.by if task.pass_at is not None else "exact_match",
    )
