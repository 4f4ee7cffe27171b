"""Rows of score tasks for people: a window of the Parquet parts of each side, joined by row number, with a diff by word."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from tuneyard.api import StorageError
from tuneyard.console.local.run_record import RunRecord
from tuneyard.data.visible import visible
from tuneyard.metrics import Figure
from tuneyard.tracking import comparable
from tuneyard.tracking.known_figures import known_figures, measured_in
from tuneyard.tracking.paired_rows import verdict

CONTINUATION = "continuation"
"""The column of a request of lm-evaluation-harness whose text has a likelihood (`scoring.harness.rows`)."""
PAGE = 20
LONGEST = 4_000
"""Characters of a text that are shown."""
MOST_WORDS = 600
"""Of each side of a diff: longer texts are shown without one."""
_MOST_OTHERS = 10_000
"""Rows of another task's output among which the other answers of a page are looked up."""
_LARGEST_NUMBER = 1 << 62
_PART = re.compile(r"part-\d+\.parquet")
_SHOWN = ("row", "row_hash", "output", "reasoning", "extracted", "error")
"""Columns that scoring adds, and that a page shows."""


@dataclass(frozen=True)
class Side:
    """A score task of a run."""

    record: RunRecord
    task: str

    @property
    def told(self) -> Mapping[str, Any]:
        return self.record.tasks[self.task]

    @property
    def label(self) -> str:
        return f"{self.record.run.name} / {self.task}"

    @property
    def body(self) -> Mapping[str, Any]:
        """`score` of its JobSpec."""
        tasks = (self.record.spec.get("spec") or {}).get("tasks") or []
        own = next((task.get("score") for task in tasks if isinstance(task, dict) and task.get("name") == self.task), None)
        return own if isinstance(own, dict) else {}

    @property
    def data(self) -> Mapping[str, Any]:
        """`score.data` of its JobSpec; of tasks of lm-evaluation-harness with the column of their continuations."""
        data = self.body.get("data") or {}
        return {**data, "reference": CONTINUATION} if data.get("lmEval") else data

    @property
    def figures(self) -> Mapping[str, Figure]:
        """The figures that it can have."""
        return known_figures(self.record.spec, self.task, self.told.get("metrics") or ())

    def alone(self) -> RunRecord:
        """The run with this score task alone, under one name, so that the figures of two sides stand in one row."""
        spec = {"spec": {"tasks": [{"name": "score", "score": self.body}]}}
        return replace(self.record, spec=spec, tasks={"score": self.told})


@dataclass(frozen=True)
class ShownRow:
    """A row of one or two sides. `outputs`: with the words that differ marked; `failed`: whether each is an error. `judged`: of each side
    the answer that its judge was shown, `others` the second of a judge of two; empty without such a judge. `asks_the_same`: whether both
    sides asked the same of this row; None: not known. `reasonings`: of each side the model's thoughts."""

    row: int
    prompt: str
    reference: str
    outputs: Sequence[Markup]
    failed: Sequence[bool]
    same: bool
    asks_the_same: bool | None = None
    judged: Sequence[str] = ()
    others: Sequence[str] = ()
    reasonings: Sequence[str] = ()
    extracted: Sequence[str | None] = ()
    """Of each side the answer that was cut out of the output; empty where there is none, None where nothing is cut out."""


def sides_of(record: RunRecord) -> list[Side]:
    return [Side(record, name) for name, task in record.tasks.items() if task.get("kind") == "score"]


def same_data(first: Side, second: Side, rows: Sequence[ShownRow]) -> bool:
    """Whether two sides scored the same rows, prompts and references: by the hashes of `rows`, as `tuneyard compare` does. Without a hash
    in both, by the sources in their JobSpecs."""
    known = [row.asks_the_same for row in rows if row.asks_the_same is not None]
    if known:
        return all(known)
    tasks = [{"name": name, "score": {"data": dict(side.data)}} for name, side in (("first", first), ("second", second))]
    return len(comparable({"spec": {"tasks": tasks}}, ["first", "second"])) == 1


def rows_at(sides: Sequence[Side], start: int, count: int = PAGE) -> list[ShownRow]:
    """Rows [start, start + count) of the sides. Raises StorageError where their parts cannot be read."""
    found = [_with_others(side, _answers(side, start, count)) for side in sides]
    numbers = sorted({row for each in found for row in each})
    return [_shown(row, [each.get(row, {}) for each in found], sides) for row in numbers]


def count_of(side: Side) -> int:
    """Rows of the committed parts, or of the samples in history where the parts are not on this machine."""
    parts = _parts(side)
    return sum(rows for _, rows in parts) if parts else len(_samples(side))


def place_of(side: Side, number: int) -> int:
    """The place of the row with this number, from 0: a sample of the data leaves numbers out. 0 where the side does not have the row.

    Raises StorageError where the parts cannot be read."""
    if not 0 <= number < _LARGEST_NUMBER:
        return 0
    parts = _parts(side)
    if not parts:
        return next((place for place, row in enumerate(_samples(side)) if row == number), 0)
    first = 0
    for path, rows in parts:
        numbers = _numbers(path, number)
        if numbers is None:
            if first <= number < first + rows:  # without the column, a row's number is its place
                return number
        elif (place := numbers.index(number).as_py()) >= 0:
            return first + int(place)
        first += rows
    return 0


def _numbers(path: Path, number: int) -> Any:
    """The numbers of a part's rows as an Arrow array; empty where its statistics say that `number` is not in it, None without numbers."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        if "row" not in file.schema_arrow.names or not pa.types.is_integer(file.schema_arrow.field("row").type):
            return None
        at = file.schema_arrow.names.index("row")
        known = [file.metadata.row_group(group).column(at).statistics for group in range(file.num_row_groups)]
        if all(each is not None and each.has_min_max and not each.min <= number <= each.max for each in known):
            return pa.chunked_array([], pa.int64())
        return file.read(["row"]).column("row").cast(pa.int64())
    except (OSError, pa.ArrowException) as error:
        raise StorageError(f"{path} cannot be read: {error}", "check the output folder of the run") from error


def _answers(side: Side, start: int, count: int) -> dict[int, dict[str, Any]]:
    """Rows by number. Only the parts that hold them are read."""
    parts = _parts(side)
    if not parts:
        samples = _samples(side)
        return dict(list(samples.items())[start : start + count])
    found: dict[int, dict[str, Any]] = {}
    first = 0
    for path, rows in parts:
        if first < start + count and start < first + rows:
            found |= {row["row"]: row for row in _read(path, side, first, start - first, count)}
        first += rows
    return found


def _with_others(side: Side, answers: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The rows of a judge of two with the other answer: that of the task in the same run that `judge.against.from` names, else of the
    samples. The judge's row numbers are places in the other task's output."""
    judge = side.body.get("judge")
    against = judge.get("against") if isinstance(judge, dict) else None
    if not isinstance(against, dict) or not answers:
        return answers
    known = {row: sample.get("against") for row, sample in _samples(side).items()}
    name, first, last = against.get("from"), min(answers), max(answers)
    if isinstance(name, str) and name in side.record.tasks and last - first < _MOST_OTHERS:
        other = Side(side.record, name)
        if _parts(other):
            known |= {first + place: row.get("output") for place, row in enumerate(_answers(other, first, last - first + 1).values())}
    return {row: {**answer, "against": known.get(row)} for row, answer in answers.items()}


def _parts(side: Side) -> list[tuple[Path, int]]:
    """Parts of a score task in the run's folder, with their rows. Empty where there are none here."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = side.record.folder
    if folder is None:
        return []
    parts = (folder / side.task / "parts").resolve()
    try:
        if not parts.is_relative_to(folder.resolve()) or not parts.is_dir():
            return []
        names = sorted(path for path in parts.iterdir() if _PART.fullmatch(path.name) and not path.is_symlink())
        return [(path, pq.read_metadata(path).num_rows) for path in names]
    except (OSError, pa.ArrowException) as error:
        raise StorageError(f"the rows of {side.label} cannot be read: {error}", "check its output folder") from error


def _read(path: Path, side: Side, first: int, start: int, count: int) -> list[dict[str, Any]]:
    """Rows [start, start + count) of a part whose first row has the number `first`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    start, count = max(0, start), count + min(0, start)
    try:
        file = pq.ParquetFile(path)
        kept = _kept_names(side, file.schema_arrow.names)
        columns = [name for name in dict.fromkeys([*_SHOWN, *kept.values()]) if name in file.schema_arrow.names]
        found: list[dict[str, Any]] = []
        passed = 0
        for batch in file.iter_batches(batch_size=1024, columns=columns):
            if passed + len(batch) > start and len(found) < count:
                found += batch.slice(max(0, start - passed), count - len(found)).to_pylist()
            passed += len(batch)
            if len(found) >= count:
                break
    except (OSError, pa.ArrowException) as error:
        raise StorageError(f"{path} cannot be read: {error}", "check the output folder of the run") from error
    return [
        {
            "row_hash": row.get("row_hash"),
            "row": row["row"] if isinstance(row.get("row"), int) else first + start + place,
            "output": row.get("output"),
            "reasoning": row.get("reasoning"),
            **({"extracted": row.get("extracted") or ""} if side.body.get("answer") and row.get("error") is None else {}),
            "error": row.get("error"),
            "prompt": row.get(kept.get("prompt", "")),
            **{what: _without_thoughts(row.get(kept.get(what, ""))) for what in ("reference", "answer")},
        }
        for place, row in enumerate(found)
    ]


def _without_thoughts(value: Any) -> Any:
    """As metrics and judges saw it."""
    from tuneyard.scoring.thoughts import without_thoughts

    return without_thoughts(value) if isinstance(value, str) else value


def _kept_names(side: Side, present: Sequence[str]) -> dict[str, str]:
    """Which of the output's columns `present` are the input's `prompt`, `reference` and, for a judge, `answer`, as far as data has them."""
    from tuneyard.scoring.parts import added_names, names_in_output

    judged = (side.data.get("answer") or "output") if side.body.get("judge") else None
    columns = {"prompt": side.data.get("prompt", "prompt"), "reference": side.data.get("reference"), "answer": judged}
    added = added_names(measured_in(side.body), side.body)
    wanted = {what: names_in_output(column, added) for what, column in columns.items() if isinstance(column, str)}
    return {what: next((name for name in names if name in present), "") for what, names in wanted.items()}


def _samples(side: Side) -> dict[int, dict[str, Any]]:
    """The samples that history keeps of a task, by row."""
    rows = [row for row in side.told.get("samples") or [] if isinstance(row, dict)]
    return dict(sorted({row.get("row", index): row for index, row in enumerate(rows)}.items()))


def _shown(number: int, answers: Sequence[Mapping[str, Any]], sides: Sequence[Side]) -> ShownRow:
    texts = [_text(answer.get("error") or answer.get("output")) for answer in answers]
    failed = [bool(answer.get("error")) for answer in answers]
    differ = len(sides) == 2 and texts[0] != texts[1]
    marked = word_diff(*texts) if differ and not any(failed) else tuple(_plain(text) for text in texts)
    known = [{key: _text(answer.get(key)) for key in ("prompt", "reference")} for answer in answers]
    prompt, reference = (next((each[key] for each in known if each[key]), "") for key in ("prompt", "reference"))
    hashes = [answer.get("row_hash") for answer in answers]
    asks_the_same = hashes[0] == hashes[1] if len(sides) == 2 and None not in hashes else None
    judged = [_text(answer.get("answer")) if side.body.get("judge") else "" for answer, side in zip(answers, sides, strict=True)]
    others = [_text(answer.get("against")) for answer in answers]
    thoughts = [_text(answer.get("reasoning")) for answer in answers]
    cut = [None if answer.get("extracted") is None else _text(answer["extracted"]) for answer in answers]
    return ShownRow(number, prompt, reference, marked, failed, len(sides) == 2 and not differ, asks_the_same, judged, others, thoughts, cut)


def word_diff(old: str, new: str) -> tuple[Markup, Markup]:
    """Both texts, with removed words of the first in <del> and new words of the second in <ins>. Long texts stay unmarked."""
    left, right = (re.findall(r"\s+|\w+|[^\w\s]", text) for text in (old, new))
    if max(len(left), len(right)) > MOST_WORDS:
        return _plain(old), _plain(new)
    first, second = [], []
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        removed, added = "".join(left[i1:i2]), "".join(right[j1:j2])
        first.append(_plain(removed) if tag == "equal" or not removed else Markup(f"<del>{_plain(removed)}</del>"))
        second.append(_plain(added) if tag == "equal" or not added else Markup(f"<ins>{_plain(added)}</ins>"))
    return Markup("").join(first), Markup("").join(second)


def _plain(text: str) -> Markup:
    return escape(visible(text))


def _text(value: Any) -> str:
    if isinstance(value, list):
        turns = [f"{turn.get('role', '')}: {turn.get('content', '')}" if isinstance(turn, dict) else str(turn) for turn in value]
        value = "\n".join(turns)
    text = "" if value is None else str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text):,} characters)"


def paired_figures(first: Side, second: Side) -> Mapping[str, tuple[str, bool]]:
    """Figure -> the verdict of the comparison of two score tasks of one run, row by row, and whether it names one of them as better."""
    if first.record.run.id != second.record.run.id:
        return {}
    for each in first.record.comparisons:
        if {each.get("task"), each.get("against")} == {first.task, second.task}:
            said = {figure["figure"]: (verdict(figure), bool(figure["real"])) for figure in each["figures"]}
            return {name: (f"{each['task']} {word}" if real else word, real) for name, (word, real) in said.items()}
    return {}
