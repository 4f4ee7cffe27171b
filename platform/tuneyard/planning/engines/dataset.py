"""Time of a whole data set on the engines of a score task, with their start."""

from __future__ import annotations

from dataclasses import dataclass

from tuneyard.planning.engines.speed import Engine, EngineTime, RowLengths

_DRAINED = 0.05
"""Share of a batch that is in flight, on average, while the longest answers end: lengths of answers have few that are long."""


@dataclass(frozen=True, kw_only=True)
class DataSetTime:
    """Seconds of a data set by term. They add up to `total_s`. `generation_s` and its rate leave start and load out."""

    start_s: float
    load_s: float
    time: EngineTime
    output_tokens: float
    batch: int
    """Sequences in flight, as far as cache and rows allow."""

    @property
    def generation_s(self) -> float:
        return self.time.total_s

    @property
    def total_s(self) -> float:
        return self.start_s + self.load_s + self.generation_s

    @property
    def output_tokens_per_s(self) -> float:
        """Of all engines."""
        return self.output_tokens / self.generation_s if self.generation_s else 0.0


def data_set_time(engine: Engine, lengths: RowLengths, *, rows: float, engines: int, batch: int) -> DataSetTime:
    """The time of `rows` rows over `engines` engines with `batch` sequences in flight in each.

    Full batches are followed by the rest of the rows in a smaller one, and by the time in which the longest answers end. Every engine loads
    the weights from the disk of its machine.
    """
    sequences = rows * lengths.samples / engines
    full, rest = divmod(sequences, batch)
    time = engine.speed(batch, lengths).time.times(full) if full else EngineTime()
    if rest:
        time = time.plus(engine.speed(max(1, round(rest)), lengths).time)
    if lengths.longest_output is not None and lengths.longest_output > lengths.output:
        draining = engine.decode(max(1.0, _DRAINED * min(batch, sequences)), lengths.prompt + lengths.longest_output)
        time = time.plus(draining.times(lengths.longest_output - lengths.output))
    own = engine.efficiency
    weights_gb = engine.model.shape.parameters * engine.model.weight_bytes / 1e9
    return DataSetTime(
        start_s=own.start_s + (0.0 if engine.eager else own.graphs_s),
        load_s=weights_gb / own.load_gb_s,
        time=time,
        output_tokens=rows * lengths.samples * lengths.output,
        batch=round(min(batch, max(1.0, sequences))),
    )
