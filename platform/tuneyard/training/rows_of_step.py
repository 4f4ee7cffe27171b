"""The rows of a step of a task whose `batch.global` is auto: decided once by the plan of the first attempt, and kept by all later ones.

The number is `<task>/rows.json` in the output. The first attempt creates it before its first step. So an attempt that ended before its
first checkpoint, on other machines, has decided too.
"""

from __future__ import annotations

import json
from contextlib import suppress

from tuneyard.api import StorageError
from tuneyard.planning import Plan
from tuneyard.storage import AlreadyExists, Store

ROWS = "rows.json"


def kept_rows(output: Store) -> int | None:
    """The rows per step of the run with this task's output; None before they are decided. Raises StorageError for an unreadable record."""
    if not output.exists(ROWS):
        return None
    try:
        return int(json.loads(output.get(ROWS))["rows"])
    except (ValueError, TypeError, KeyError) as error:
        raise StorageError(
            f"{output.url(ROWS)} does not hold the rows of a step: {error}",
            "write the number that the report has (global_batch of its plan), or start over in another output",
        ) from error


def keep_rows(output: Store, plan: Plan, *, anew: bool = False) -> int:
    """Record the rows per step of a plan, unless an attempt has done so before. `anew`: earlier attempts do not count, since the run starts
    over. Returns the number that the run has.
    """
    record = {"rows": plan.global_batch, "sku": plan.sku, "workers": plan.workers, "micro_batch": plan.micro_batch}
    data = json.dumps(record).encode() + b"\n"
    if anew:
        output.put(ROWS, data)
    with suppress(AlreadyExists):
        output.create(ROWS, data)
    return kept_rows(output) or plan.global_batch
