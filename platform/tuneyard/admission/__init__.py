"""Admission: whether a job can run, and where. All callers get the same decision. Pure: it reads no file and asks no server.

`admit` says what keeps a job from running at a venue: anywhere, on a hub, or on one machine. `ask_of` says what an admitted task asks
of the scheduler: the SKUs and numbers of workers with which it works and fits. A pod never refuses a task that the hub has placed, because
both read the same table of rules (`tuneyard.api`), numbers of workers (`tuneyard.api.worker_counts`) and layouts (`tuneyard.planning`).
"""

from tuneyard.admission.admitting import admit
from tuneyard.admission.asks import ask_of
from tuneyard.admission.on_machine import check_instances, choose_workers
from tuneyard.admission.refusal import Refusal, refused
from tuneyard.admission.remarks import model_remarks, remarks
from tuneyard.admission.shapes import model_origin
from tuneyard.admission.venues import Anywhere, Hub, Machine, Venue

__all__ = [
    "Anywhere",
    "Hub",
    "Machine",
    "Refusal",
    "Venue",
    "admit",
    "ask_of",
    "check_instances",
    "choose_workers",
    "model_origin",
    "model_remarks",
    "refused",
    "remarks",
]
