"""Prompts that stand both in training data and in scored data: exactly, and by normalized text. Memory is bounded: prompts are hashes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from hashlib import blake2b
from itertools import islice
from typing import Any

from tuneyard.api import BadInput, ScoreData, TrainData
from tuneyard.api.prompt_templates import of_prompt
from tuneyard.data.kept import facts_of, keep, kept, key_of
from tuneyard.data.roles import Chat, Completion, Pair, Sample
from tuneyard.data.samples import Objective, Tally, training_samples
from tuneyard.data.score_rows import ScoreRows
from tuneyard.data.sources import locate
from tuneyard.data.tool_calls import Message

MOST_SAMPLES, MOST_ROWS = 50_000, 20_000
"""Training samples of each data set, and scored rows, that are compared: more would hold up the start of a job."""
_SHOWN = 3
_FOLDER, _VERSION = "overlaps", 1
"""Where counts are kept; those of an earlier version are not taken."""
_NOT_WORDS = re.compile(r"[\W_]+")


@dataclass
class Prompts:
    """The prompts of training data, as two sets of hashes. `complete`: of all samples."""

    exact: set[bytes] = field(default_factory=set)
    alike: set[bytes] = field(default_factory=set)
    complete: bool = True
    template: str | None = None
    """The template that scored prompts get too, unless their task says otherwise."""

    def add(self, data: TrainData, objective: Objective) -> None:
        """Add the prompts of one data set with a resolved source. Raises BadInput as `training_samples`."""
        assert data.source is not None
        located = locate(data.source, file_type=data.file_type, split=data.split, sheet=data.sheet)
        _, samples = training_samples(located, Tally(located.uri), source=data, spec=data, objective=objective)
        self.template = self.template or (of_prompt(data.template) if data.template else None)
        for number, placed in enumerate(samples):
            if number >= MOST_SAMPLES:
                self.complete = False
                return
            for text in _asked(placed.sample):
                self.exact.add(_hash(text.strip()))
                self.alike.add(_hash(_normal(text)))


@dataclass(frozen=True)
class Trained:
    """The data sets that a model was trained on, with resolved sources, and their objectives."""

    sets: Sequence[tuple[TrainData, Objective]]

    @cached_property
    def prompts(self) -> Prompts:
        """Raises BadInput."""
        prompts = Prompts()
        for data, objective in self.sets:
            prompts.add(data, objective)
        return prompts

    def facts(self) -> list[Any]:
        """What the prompts depend on. Raises BadInput."""
        return [(facts_of(data), objective) for data, objective in self.sets]


@dataclass(frozen=True)
class Overlap:
    """`exact`, `alike`: scored rows whose prompt was trained on, word for word, and but for case, blanks and punctuation. `rows`: that were
    looked at. `examples`: numbers of rows. `complete`: all rows, and all samples."""

    rows: int
    exact: int
    alike: int
    examples: Sequence[int]
    complete: bool

    def words(self, trained: str) -> str:
        """The warning. `trained`: the names of the train tasks."""
        found = self.exact + self.alike
        kinds = [f"{self.exact:,} word for word"] * bool(self.exact)
        kinds += [f"{self.alike:,} but for case, blanks and punctuation"] * bool(self.alike)
        part = "" if self.complete else f"; only the first {MOST_SAMPLES:,} samples and {MOST_ROWS:,} rows were compared"
        rows = ", ".join(map(str, self.examples))
        return (
            f"{found:,} of {self.rows:,} prompts stand in the training data of {trained} too ({', '.join(kinds)}), such as "
            f"row{'' if len(self.examples) == 1 else 's'} {rows}{part}: take them out of one, or figures say little about new prompts"
        )


def overlap_of(data: ScoreData, trained: Trained) -> Overlap | None:
    """The overlap of the rows of `data`, whose source is resolved, with trained prompts; None where there is none. It is counted once for
    the same data. Raises BadInput.
    """
    key = key_of(_VERSION, facts_of(data), trained.facts())
    found: dict[str, Any] | None = kept(_FOLDER, key)
    if found is None:
        counted = _counted(data, trained.prompts)
        keep(_FOLDER, key, asdict(counted) if counted is not None else {})
        return counted
    return Overlap(**found) if found else None


def _counted(data: ScoreData, prompts: Prompts) -> Overlap | None:
    rows = _opened(data, prompts.template)
    exact, alike, total = list[int](), list[int](), min(rows.count(), MOST_ROWS)
    for start in range(0, total, 1000):
        for row in rows.read(start, min(start + 1000, total)):
            text = "" if row["error"] is not None else _of_score(row["prompt"])
            if not text:
                continue
            if _hash(text.strip()) in prompts.exact:
                exact.append(row["index"])
            elif (normal := _normal(text)) and _hash(normal) in prompts.alike:
                alike.append(row["index"])
    if not exact and not alike:
        return None
    complete = prompts.complete and total == rows.count()
    return Overlap(total, len(exact), len(alike), list(islice(sorted([*exact, *alike]), _SHOWN)), complete)


def _opened(data: ScoreData, template: str | None) -> ScoreRows:
    if data.template is None and template is not None:
        with suppress(BadInput):  # rows without its columns are scored as they are, or refused when the task starts
            return ScoreRows.open(data.model_copy(update={"template": template}))
    return ScoreRows.open(data)


def _asked(sample: Sample) -> Iterator[str]:
    """The prompt of each answer of a sample: all turns before it but those of the system."""
    match sample:
        case Completion(prompt, _):
            yield prompt
        case Chat(messages):
            for place, message in enumerate(messages):
                if message["role"] == "assistant" and place >= sample.context:
                    yield _said(messages[:place])
        case Pair(prompt):
            yield prompt if isinstance(prompt, str) else _said(prompt)
        case _:
            return


def _of_score(prompt: str | list[dict[str, Any]]) -> str:
    return prompt if isinstance(prompt, str) else _said(prompt)


def _said(messages: Sequence[Message]) -> str:
    return "\n".join(str(message.get("content") or "") for message in messages if message["role"] not in ("system", "developer"))


def _normal(text: str) -> str:
    return _NOT_WORDS.sub(" ", text.casefold()).strip()


def _hash(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
