"""`tuneyard schedule run` with a clock that jumps: `python -m tests.clusters.clocked_runner FILE UNTIL CLOCK`.

CLOCK names the file with the present time (RFC 3339), so that a runner which was killed goes on at the same time. The clock moves to the
next event while no process is under way.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from tests.clusters.clocked_hub import set_clock

from tuneyard.api.templates import no_template
from tuneyard.cli.schedule.follow import read_schedule
from tuneyard.runtime.interrupt import never
from tuneyard.runtime.scheduled import Runner, ScheduleFolder


class JumpingClock:
    def __init__(self, file: Path) -> None:
        self._file = file

    def now(self) -> datetime:
        return datetime.fromisoformat(self._file.read_text()).astimezone(UTC)

    def wait(self, until: datetime, *, busy: bool) -> None:
        if busy:
            time.sleep(0.05)
        elif until > self.now():
            set_clock(self._file, until)


if __name__ == "__main__":
    file, until, clock = Path(sys.argv[1]), datetime.fromisoformat(sys.argv[2]), JumpingClock(Path(sys.argv[3]))
    schedule = read_schedule(file, no_template)
    folder = ScheduleFolder(Path("runs", schedule.metadata.name))
    with folder.locked() as is_ours:
        assert is_ours, "the runner before has ended"
        good = Runner(lambda: schedule, folder, file.absolute().parent, clock, lambda line: print(line, flush=True)).run(never, until)
    sys.exit(0 if good else 1)
