"""Checks from its footers whether a table fits a rank task."""

from __future__ import annotations

import pyarrow as pa

from tuneyard.api import BadInput, RankTask
from tuneyard.data.tables import TableReader, open_table
from tuneyard.ranking.columns import check_ids, check_numbers
from tuneyard.ranking.task import training_steps
from tuneyard.ranking.transforms import check_outputs, schema_of


def check_table(task: RankTask, uri: str, *, held_out: bool = False) -> None:
    """Raises BadInput for a table that lacks one of the task's columns, or has it in a type that a transform or the ranker does not take.

    `held_out`: a table of held-out rows, which are not sampled. Reads only footers.
    """
    table, steps = open_table(uri), training_steps(task)
    if held_out:
        steps = steps.without_sampling
    read = TableReader(table, steps.reads(task.named)).schema
    check_outputs(table, steps, read)
    schema = schema_of(read, steps, task.named)
    for name in [*task.features.dense, *task.labels]:
        check_numbers(schema.field(name).type, name)
    for column in task.features.sparse:
        check_ids(schema.field(column.name).type, column.name)
    for name in task.slices:
        if pa.types.is_nested(schema.field(name).type):
            raise BadInput(f"slice column {name} holds {schema.field(name).type}", "name a column of single values")
    if not table.rows:
        raise BadInput(f"{uri}: the table has no row", "name a table with rows; a day without clicks is left out")
