"""Run history (SQL), trackers, reports, the logs of ranks, the events that feed them, and the progress that is folded from events.

Importing this room loads none of SQLAlchemy, Jinja and the clients of trackers: what needs them is loaded at its first use.
"""

from typing import TYPE_CHECKING, Any

from tuneyard.tracking.bottleneck import Bottleneck, bottleneck_of
from tuneyard.tracking.comparing import comparable, prompt_forms
from tuneyard.tracking.events import (
    ROWS_OF_EVALUATION,
    Charged,
    Checkpointed,
    Emit,
    Evaluated,
    Event,
    Placed,
    Preflighted,
    SampleShown,
    Scored,
    Stage,
    Step,
    StepsBegin,
    TaskEvent,
    TaskState,
    TimeSplit,
    Tried,
    Warned,
    silent,
)
from tuneyard.tracking.progress.fold import Count, EndedAttempt, JobProgress, StageProgress, TaskProgress, after, job_after, job_before
from tuneyard.tracking.progress.status import job_of_status, task_of_status
from tuneyard.tracking.recorder import Recorder, open_recorder
from tuneyard.tracking.remarks import remarks_of
from tuneyard.tracking.report import Report
from tuneyard.tracking.report_files import REPORT_HTML, REPORT_JSON, write_report
from tuneyard.tracking.task_logs import LogReader
from tuneyard.tracking.trackers import asked_for

if TYPE_CHECKING:
    from tuneyard.tracking.history import History
    from tuneyard.tracking.past import PastJob

__all__ = [
    "REPORT_HTML",
    "REPORT_JSON",
    "ROWS_OF_EVALUATION",
    "Bottleneck",
    "Charged",
    "Checkpointed",
    "Count",
    "Emit",
    "EndedAttempt",
    "Evaluated",
    "Event",
    "History",
    "JobProgress",
    "LogReader",
    "PastJob",
    "Placed",
    "Preflighted",
    "Recorder",
    "Report",
    "SampleShown",
    "Scored",
    "Stage",
    "StageProgress",
    "Step",
    "StepsBegin",
    "TaskEvent",
    "TaskProgress",
    "TaskState",
    "TimeSplit",
    "Tried",
    "Warned",
    "after",
    "asked_for",
    "bottleneck_of",
    "comparable",
    "job_after",
    "job_before",
    "job_of_status",
    "open_recorder",
    "prompt_forms",
    "remarks_of",
    "silent",
    "task_of_status",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name in ("History", "PastJob"):
        from tuneyard.tracking import history, past

        return getattr(history if name == "History" else past, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
