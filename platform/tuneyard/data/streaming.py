"""Streamed training data: a stream of `tuneyard.data.stream` as `Prepared`, with rows built while a task trains."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuneyard.api import TrainData
from tuneyard.api.quantities import bytes_text
from tuneyard.data.control_tokens import controls_notes
from tuneyard.data.losses import muted_note
from tuneyard.data.order import Positions
from tuneyard.data.packing import efficiency
from tuneyard.data.preparation import Prepared, end_note, row_settings, template_to_save
from tuneyard.data.report import COUNTS, DataReport
from tuneyard.data.samples import Objective
from tuneyard.data.shared.place import Counts
from tuneyard.data.sources import Located
from tuneyard.data.stream import open_stream
from tuneyard.data.stream.evaluation_rows import EvaluationRows
from tuneyard.data.stream.opening import Described
from tuneyard.data.stream.shards import ShardFacts
from tuneyard.data.streamed import Streamed
from tuneyard.data.way import VALIDATION, Ways
from tuneyard.tracking import Emit, Stage, Warned


@dataclass(frozen=True)
class StreamedOrder:
    """The identity order: the stream itself maps positions to rows."""

    rows: Streamed

    @property
    def epoch_rows(self) -> int:
        """Rows of an epoch; the same in every attempt."""
        return self.rows.epoch_rows

    def at(self, position: int) -> int:
        return position

    def at_each(self, positions: Positions) -> Positions:
        return positions


def prepare_stream(
    spec: TrainData,
    located: Located,
    tokenizer: Any,
    *,
    objective: Objective,
    seed: int,
    cache_dir: str | Path | None,
    service: Path | None,
    emit: Emit,
    task: str,
    ways: Ways,
) -> Prepared:
    """As `prepare`, but returns once a sample of some MiB was tokenised. Raises as `open_stream`."""
    emit(Stage(task=task, name="opening the data as a stream"))
    settings = row_settings(spec, tokenizer, objective)
    stream = open_stream(
        spec,
        located,
        tokenizer,
        objective=objective,
        seed=seed,
        key=settings,
        cache_dir=cache_dir,
        service=service,
        way=ways[""],
    )
    report = stream_report(spec, located, tokenizer, stream.found)
    for message in report.warnings():
        emit(Warned(task=task, message=message))
    sampled, of = bytes_text(stream.found.sampled.facts.source_bytes), bytes_text(located.size_bytes)
    rows = f"about {report.rows:,} rows an epoch, by a sample of {sampled} of {of}"
    emit(Stage(task=task, name=f"streaming {rows}"))
    order = StreamedOrder(stream.rows)
    return Prepared(stream.rows, stream.validation, report, False, order, streams=(("", stream.rows),), ways=ways)


def stream_report(spec: TrainData, located: Located, tokenizer: Any, found: Described) -> DataReport:
    """The report of data of which a sample was read."""
    template, sample = found.recipe.encoder.template, found.sampled.facts
    notes = [*located.notes, *found.roles.notes(), *controls_notes(sample.as_text, sample.as_tokens)]
    notes += filter(None, [muted_note(sample.muted), end_note(spec, tokenizer, template)])
    return DataReport(
        source=located.uri,
        format=found.roles.format,
        why=found.roles.why,
        files=len(located.files),
        samples=sample.samples,
        rows=found.epoch_rows,
        validation_rows=0,
        max_length=spec.max_length,
        packed=spec.pack,
        tokens=sample.tokens,
        packing_efficiency=efficiency(sample.rows, sample.tokens, spec.max_length * found.recipe.encoder.together),
        loss_tokens=sample.loss_tokens,
        truncated=sample.truncated,
        dropped=sample.dropped,
        cut_answers=sample.cut_answers,
        alike=sample.alike,
        dropped_examples=sample.dropped_examples,
        left_out=sample.left_out,
        bad=sample.bad,
        bad_examples=sample.bad_examples,
        template=template.origin if template else "",
        prompt_template=found.roles.template,
        chat_template=template_to_save(tokenizer, template, reasons=sample.reasons, tools=sample.tools) if template else None,
        reasons=sample.reasons,
        tools=sample.tools,
        notes=notes,
        streamed=True,
        epoch_rows=found.epoch_rows,
    )


def counts_of(facts: ShardFacts) -> dict[str, Any]:
    """The fields of a report that count samples, by the shards that were read."""
    return {name: getattr(facts, name) for name in (*COUNTS, "dropped_examples", "bad_examples")}


def made_for_evaluation(rows: Any) -> list[EvaluationRows[Any]]:
    """The rows of `Prepared.validation`, or of its parts, that are made while the task trains."""
    return [each for each in getattr(rows, "datasets", (rows,)) if isinstance(each, EvaluationRows)]


def work_of(prepared: Prepared) -> dict[str, Any]:
    """Sums over all streams that this process has read.

    Seconds by kind of work (of one process), `waited_s` of this rank, source bytes, tokens and shards.
    """
    tallies = [rows.tally for _, rows in prepared.streams]
    kinds = dict.fromkeys(kind for tally in tallies for kind in tally.facts.seconds)
    return {
        "seconds": {kind: sum(tally.facts.seconds.get(kind, 0.0) for tally in tallies) for kind in kinds},
        "waited_s": sum(tally.waited_s for tally in tallies),
        "source_bytes": sum(tally.facts.source_bytes for tally in tallies),
        "tokens": sum(tally.facts.tokens for tally in tallies),
        "shards": sum(len(tally.splits) for tally in tallies),
    }


def shared_work_of(prepared: Prepared) -> dict[str, Any]:
    """What became of shared shards on this machine, as `shared_shards`. Waits for shards that are being stored, for a bounded time."""
    streams = [rows for _, rows in prepared.streams]
    courier = next((rows.stream.shared for rows in streams if rows.stream.shared is not None), None)
    if courier is None:
        return {}
    read = frozenset(rows.stream.recipe.mark(rows.stream.splits[split]) for rows in streams for split in rows.tally.splits)
    counts = courier.finish(read) or Counts(problem="the process that fetches and stores them has ended, or does not answer")
    return {"shared_shards": counts.about(courier.place)}


def read_so_far(prepared: Prepared) -> DataReport:
    """The report, with counts of all shards that this process has read in place of those of a sample."""
    report = _trained_on(prepared)
    if VALIDATION not in prepared.ways:
        return report
    rows = prepared.validation
    return replace(report, validation_rows=(rows.counted or 0) if isinstance(rows, EvaluationRows) else len(rows or ()))


def _trained_on(prepared: Prepared) -> DataReport:
    if not prepared.report.streamed:
        return prepared.report
    if prepared.parts:
        return prepared.report.with_parts([read_so_far(part) for part in prepared.parts])
    report, facts = prepared.report, prepared.streams[0][1].tally.facts
    packed = efficiency(facts.rows, facts.tokens, report.row_length)
    held_out = prepared.validation.counted if isinstance(prepared.validation, EvaluationRows) else None
    validation_rows = facts.held_out if held_out is None else held_out
    return replace(report, **counts_of(facts), rows=facts.rows, validation_rows=validation_rows, packing_efficiency=packed)
