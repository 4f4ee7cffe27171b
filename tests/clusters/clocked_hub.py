"""The hub operator with a clock for Schedules that is handed in: `python -m tests.clusters.clocked_hub hub …`. All else follows real time.

TUNEYARD_TEST_CLOCK names the file with the present time (RFC 3339).
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from tuneyard_operators.__main__ import main

CLOCK = "TUNEYARD_TEST_CLOCK"


def set_clock(file: Path, moment: datetime) -> None:
    new = file.with_suffix(".new")
    new.write_text(moment.isoformat())
    new.replace(file)


if __name__ == "__main__":
    clock = Path(os.environ[CLOCK])
    sys.exit(main(lambda: datetime.fromisoformat(clock.read_text()).astimezone(UTC)))
