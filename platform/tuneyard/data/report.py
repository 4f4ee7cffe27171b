"""What preparing a data set came to: the numbers that a person wants to see before GPUs are spent on it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class DataReport:
    """`tokens` and `loss_tokens` are of the training rows; both are 0 for preference pairs, which TRL tokenises."""

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
    """Share of the rows' places that hold tokens, were every row padded to maxLength (0..1)."""
    truncated: int = 0
    dropped: int = 0
    """Too long (overlong: drop), or nothing with loss left after the cut."""
    dropped_examples: list[str] = field(default_factory=list)
    left_out: int = 0
    """Rows that are labelled as answers that must not be learned."""
    bad: int = 0
    bad_examples: list[str] = field(default_factory=list)
    template: str = ""
    """Where the chat template comes from; empty where none was needed."""
    chat_template: str | None = None
    """Jinja that the tokenizer must carry from now on: given, the default, or its own with a prompt that opens answers as they were
    trained; None: its own stays."""
    reasons: bool = False
    tools: bool = False
    """Some sample has reasoning, or tools."""
    notes: list[str] = field(default_factory=list)
    streamed: bool = False
    """Rows were made while the task trained: counts are of what was read so far."""
    parts: list[dict[str, Any]] = field(default_factory=list)
    """Of a mixture: `name`, `source`, `rows` of one pass, and `share` of the rows (0..1) of each part; empty for one data set."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def warnings(self) -> list[str]:
        """What a person should know though nothing failed, one sentence each."""
        said = list(self.notes)
        if self.left_out:
            said.append(f"{self.left_out:,} rows are labelled false, as answers that must not be learned, and are left out")
        if self.bad:
            rows = "1 bad row is left out:" if self.bad == 1 else f"{self.bad:,} bad rows are left out, such as"
            said.append(f"{rows} {self.bad_examples[0]}")
        if self.truncated:
            said.append(f"{self.truncated} samples are longer than maxLength {self.max_length} and were cut")
        if self.dropped:
            said.append(f"{self.dropped} samples were dropped, such as {self.dropped_examples[0]}")
        if self.template.startswith("tuneyard"):
            said.append("the tokenizer has no chat template: tuneyard's default is used and saved with the model")
        return said
