"""Several data sets as one mixture. Each part is prepared by itself, with its own cache entry; rows are mixed by position."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from tuneyard.api import BadInput, TrainData
from tuneyard.data.chat import choose_template
from tuneyard.data.mapped_rows import by_batches
from tuneyard.data.mix_parts import of_part, part_data, part_names
from tuneyard.data.mixture import Mixture, Part
from tuneyard.data.order import Positions, RowOrder
from tuneyard.data.part_events import PartEvents
from tuneyard.data.preparation import Prepared, prepare, template_to_save
from tuneyard.data.report import DataReport
from tuneyard.data.samples import Objective
from tuneyard.data.token_batch import TokenBatch
from tuneyard.data.way import Ways
from tuneyard.tracking import Emit, Warned


class MixedRows:
    """The rows of parts, where some parts are streamed. Row i of part p has the index i * parts + p."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self._parts = parts

    @property
    def column_names(self) -> list[str]:
        """The columns, which all parts share."""
        names: list[str] = self._parts[0].column_names
        return names

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> TokenBatch:
        """These rows, in this order."""
        rows, parts = np.divmod(np.asarray(indices, dtype=np.int64), len(self._parts))
        of_parts = [(part, np.flatnonzero(parts == part)) for part in np.unique(parts).tolist()]
        found = [(numbers, self._parts[part].__getitems__(rows[numbers].tolist())) for part, numbers in of_parts]
        return TokenBatch.merged(found, len(indices))


@dataclass(frozen=True)
class StreamedMixOrder:
    """The order of the rows of `MixedRows`."""

    mixture: Mixture
    orders: tuple[RowOrder, ...]

    @property
    def epoch_rows(self) -> int:
        """Estimated positions of one epoch of the mixture."""
        return self.mixture.epoch_rows

    def at(self, position: int) -> int:
        """The index in `MixedRows` at `position`."""
        part, row = self.mixture.at(position)
        return self.orders[part].at(row) * len(self.orders) + part

    @property
    def parts(self) -> int:
        return len(self.orders)

    def part_of(self, row: int) -> int:
        """The number of the part to which the row with this index in `MixedRows` belongs."""
        return row % len(self.orders)

    def at_each(self, positions: Positions) -> Positions:
        """`at` of each of many positions."""
        parts, rows = self.mixture.at_each(positions)
        return _ordered(self.orders, parts, rows) * len(self.orders) + parts


@dataclass(frozen=True)
class MixedOrder:
    """The order of the rows of all parts, concatenated. `starts[i]`: the index of the first row of part i."""

    mixture: Mixture
    orders: tuple[RowOrder, ...]
    starts: tuple[int, ...]

    @property
    def epoch_rows(self) -> int:
        """Positions of one epoch of the mixture."""
        return self.mixture.epoch_rows

    def at(self, position: int) -> int:
        """The row at `position`, counted over the rows of all parts."""
        part, row = self.mixture.at(position)
        return self.starts[part] + self.orders[part].at(row)

    @property
    def parts(self) -> int:
        return len(self.orders)

    def at_each(self, positions: Positions) -> Positions:
        """`at` of each of many positions."""
        parts, rows = self.mixture.at_each(positions)
        return np.asarray(self.starts, dtype=np.int64)[parts] + _ordered(self.orders, parts, rows)

    def part_of(self, row: int) -> int:
        """The number of the part to which a row belongs."""
        return bisect_right(self.starts, row) - 1


def _ordered(orders: Sequence[RowOrder], parts: Positions, rows: Positions) -> Positions:
    """The row numbers of each part, mapped by the part's own order."""
    found = np.empty_like(rows)
    for part, order in enumerate(orders):
        chosen = parts == part
        if chosen.any():
            found[chosen] = order.at_each(rows[chosen])
    return found


def prepare_mixture(
    spec: TrainData,
    tokenizer: Any,
    *,
    objective: Objective,
    seed: int,
    cache_dir: str | Path | None,
    service: Path | None,
    emit: Emit,
    task: str,
    steps: int | None,
    ways: Ways,
) -> Prepared:
    """As `prepare`, for `spec.mix`. Raises BadInput that names the part."""
    names = part_names(spec.mix)
    events = PartEvents(emit)

    def prepared_part(name: str, part: TrainData) -> Prepared:
        how: Any = {"objective": objective, "seed": seed, "cache_dir": cache_dir, "service": service, "task": task, "steps": steps}
        try:
            return prepare(part, tokenizer, emit=events.of(name), ways={"": ways[name]}, **how)
        except BadInput as error:
            raise of_part(name, error) from error

    parts = [prepared_part(name, part_data(spec, part)) for name, part in zip(names, spec.mix, strict=True)]
    mixture = Mixture(
        [
            Part(name, ways[name].rows or prepared.order.epoch_rows, part.weight, part.repeats)
            for name, prepared, part in zip(names, parts, spec.mix, strict=True)
        ],
        seed=seed,
        exhausted=spec.when_exhausted,
        temperature=spec.temperature,
    )
    rows, order = _mixed(parts, mixture)
    validation = _evaluated([part.validation for part in parts if part.validation is not None])
    chosen, notes = _template(spec, tokenizer, names, parts)
    for note in notes:
        emit(Warned(task=task, message=note))
    report = _report(spec, parts, mixture, chat_template=chosen, notes=notes)
    streams = tuple((name, stream) for name, part in zip(names, parts, strict=True) for _, stream in part.streams)
    return Prepared(rows, validation, report, all(part.cached for part in parts), order, mixture, streams, tuple(parts), ways=ways)


def _mixed(parts: Sequence[Prepared], mixture: Mixture) -> tuple[Any, RowOrder]:
    orders = tuple(part.order for part in parts)
    if any(part.streams for part in parts):
        return MixedRows([by_batches(part.train) for part in parts]), StreamedMixOrder(mixture, orders)
    counts = [order.epoch_rows for order in orders]
    return _end_to_end([part.train for part in parts]), MixedOrder(mixture, orders, tuple(accumulate(counts[:-1], initial=0)))


def _evaluated(held_out: Sequence[Any]) -> Any | None:
    """The held-out rows of all parts, concatenated; None where there are none."""
    import datasets

    if all(isinstance(each, datasets.Dataset) for each in held_out):
        return _end_to_end(held_out)
    from torch.utils.data import ConcatDataset

    return ConcatDataset(held_out)


def _end_to_end(rows: Sequence[Any]) -> Any | None:
    """The concatenation of data sets, in order; None for an empty sequence."""
    if not rows:
        return None
    import datasets

    return datasets.concatenate_datasets(list(rows))


def _template(spec: TrainData, tokenizer: Any, names: Sequence[str], parts: Sequence[Prepared]) -> tuple[str | None, list[str]]:
    """The Jinja to save with the tokenizer (None: its own), and warnings. Of several templates, the one of the first part with chats."""
    notes = []
    if len(_prompt_templates([each.report for each in parts])) > 1:
        notes.append("the parts have several prompt templates, and none is saved with the model: give score tasks their data.template")
    chats = [(name, part, each) for name, part, each in zip(names, spec.mix, parts, strict=True) if each.report.template]
    if not chats:
        return None, notes
    first, part, _ = chats[0]
    template = choose_template(tokenizer, part.chat_template or spec.chat_template)
    other = [name for name, each, _ in chats if (each.chat_template or spec.chat_template) != (part.chat_template or spec.chat_template)]
    if other:
        notes.append(f"{', '.join(other)} is rendered by another chat template than {first}, whose template is saved with the model")
    reports = [each.report for _, _, each in chats]
    reasons, tools = any(report.reasons for report in reports), any(report.tools for report in reports)
    return template_to_save(tokenizer, template, reasons=reasons, tools=tools), notes


def _prompt_templates(reports: Sequence[DataReport]) -> set[str]:
    """The templates of the parts that have prompts; empty for a part without one. Chats and texts have none."""
    return {report.prompt_template for report in reports if report.format in ("prompt-completion", "preference")}


def _report(spec: TrainData, parts: Sequence[Prepared], mixture: Mixture, *, chat_template: str | None, notes: Sequence[str]) -> DataReport:
    reports = [part.report for part in parts]
    forms = _prompt_templates(reports)
    report = DataReport(
        files=0,
        samples=0,
        rows=0,
        validation_rows=0,
        source=f"a mixture of {len(parts)} data sets",
        format=" + ".join(dict.fromkeys(report.format for report in reports)),
        why="each part by itself",
        max_length=spec.max_length,
        packed=spec.pack,
        prompt_template=forms.pop() if len(forms) == 1 else "",
        template=next((report.template for report in reports if report.template), ""),
        chat_template=chat_template,
        reasons=any(report.reasons for report in reports),
        tools=any(report.tools for report in reports),
        notes=[*notes, *(note for report in reports for note in report.notes)],
        parts=[{"name": part.name, "rows": part.rows, "share": share} for part, share in zip(mixture.parts, mixture.shares, strict=True)],
    )
    return report.with_parts(reports)
