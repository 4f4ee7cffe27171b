"""The report of a prepared data set: the numbers to check before spending GPU time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tuneyard.data.faults import one_of_each

COUNTS = ("samples", "tokens", "loss_tokens", "truncated", "cut_answers", "dropped", "alike", "left_out", "bad")
_SUMS = ("files", "rows", "validation_rows", *COUNTS)
NO_CHAT_TEMPLATE = "the tokenizer has no chat template: tuneyard's default is used and saved with the model"


@dataclass(frozen=True, kw_only=True)
class DataReport:
    """`tokens` and `loss_tokens` count training rows. `samples`, `truncated` and `dropped` count pairs, if the data are preferences."""

    source: str
    format: str
    why: str
    """How the format was found."""
    files: int
    samples: int
    """Good samples, validation included."""
    rows: int
    validation_rows: int
    max_length: int
    packed: bool
    tokens: int = 0
    loss_tokens: int = 0
    packing_efficiency: float = 0.0
    """Share of places that hold tokens if every row is padded to maxLength (0..1)."""
    truncated: int = 0
    cut_answers: int = 0
    """Samples whose answer lost its end by the cut. The chosen and the rejected answer of a pair count one by one."""
    dropped: int = 0
    """Samples that are too long (overlong: drop), or have no loss left after the cut."""
    alike: int = 0
    """Of the dropped pairs, those whose answers are equal after the cut."""
    dropped_examples: list[str] = field(default_factory=list)
    left_out: int = 0
    """Rows labelled as answers that must not be learned."""
    bad: int = 0
    bad_examples: list[str] = field(default_factory=list)
    template: str = ""
    """The source of the chat template; empty where none was needed."""
    chat_template: str | None = None
    """The Jinja to save with the tokenizer: the given template, the default, or its own with a prompt that opens answers as in training.
    None: its own template stays."""
    prompt_template: str = ""
    """`data.template`, to save with the tokenizer; empty: prompts are the rows' own, or the parts of a mixture have several templates."""
    reasons: bool = False
    tools: bool = False
    """At least one sample has reasoning (`reasons`) or tools (`tools`)."""
    notes: list[str] = field(default_factory=list)
    streamed: bool = False
    """Rows of the data set, or of a part, were streamed. Their counts cover the splits that were read so far."""
    validation_streamed: bool = False
    """The rows of `data.validation` were made while the task trained. `validation_rows` is 0 before the first evaluation."""
    epoch_rows: int = 0
    """Estimated rows of an epoch of streamed data; 0 where `rows` counts all rows."""
    parts: list[dict[str, Any]] = field(default_factory=list)
    """Per part of a mixture: `name`, `source`, `format`, `rows` of one pass, `share` of the rows (0..1), `tokens`, `packing_efficiency`
    and `streamed`; empty for one data set."""

    @property
    def row_length(self) -> int:
        """The most tokens of a row. Both samples of a preference pair are one row."""
        return self.max_length * (2 if self.format == "preference" else 1)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def with_parts(self, reports: Sequence[DataReport]) -> DataReport:
        """The report of a mixture, with the sums of its parts' reports."""
        sums = {name: sum(getattr(report, name) for report in reports) for name in _SUMS}
        places = sum(report.tokens / report.packing_efficiency for report in reports if report.packing_efficiency)
        return replace(
            self,
            **sums,
            packing_efficiency=sums["tokens"] / places if places else 0.0,
            streamed=any(report.streamed for report in reports),
            dropped_examples=[line for report in reports for line in report.dropped_examples][:5],
            bad_examples=[line for report in reports for line in report.bad_examples][:5],
            parts=[part | report._as_part() for part, report in zip(self.parts, reports, strict=True)],
        )

    def _as_part(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("source", "format", "tokens", "packing_efficiency", "streamed")}

    def warnings(self) -> list[str]:
        """Warnings for people, one sentence each."""
        said = list(self.notes)
        if self.left_out:
            said.append(f"{self.left_out:,} rows are labelled false, as answers that must not be learned, and are left out")
        if self.bad:
            rows = "1 bad row is left out:" if self.bad == 1 else f"{self.bad:,} bad rows are left out, such as"
            said.append(f"{rows} {one_of_each(self.bad_examples)}")
        samples = "pairs" if self.format == "preference" else "samples"
        if self.truncated:
            answers = "1 answer has lost its end" if self.cut_answers == 1 else f"{self.cut_answers:,} answers have lost their end"
            lost = f": {answers}" if self.cut_answers and self.format != "text" else ""
            said.append(f"{self.truncated:,} {samples} are longer than maxLength {self.max_length} and were cut{lost}")
        if self.dropped:
            alike = f"; {self.alike:,} of them have equal answers after the cut" if self.alike else ""
            said.append(f"{self.dropped:,} {samples} were dropped, such as {self.dropped_examples[0]}{alike}")
        if self.template.startswith("tuneyard"):
            said.append(NO_CHAT_TEMPLATE)
        return said
