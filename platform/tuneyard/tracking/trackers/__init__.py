"""Trackers of experiments: Comet, Weights & Biases, MLflow and TensorBoard, each through its own client.

`measurements` turns events into named metrics, so that names are equal in all trackers. `delivery` hands them to the trackers of a job,
each from a thread of its own. A tracker is one file with a `TrackerKind`, and an entry in `table`. Importing this room imports no client.
"""

from tuneyard.tracking.trackers.delivery import KeepFile, Trackers
from tuneyard.tracking.trackers.table import TRACKERS, Asked, asked_for
from tuneyard.tracking.trackers.tracker import TrackedRun, Tracker, TrackerKind

__all__ = ["TRACKERS", "Asked", "KeepFile", "TrackedRun", "Tracker", "TrackerKind", "Trackers", "asked_for"]
