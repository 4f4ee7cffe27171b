"""Client of the hub: submit, show, follow and cancel JobSpecs, and show the clusters that run them.

`open_hub` finds the hub as kubectl does (kubeconfig, context, namespace, or a pod's service account) and answers a `Hub`. All errors are
TuneyardError with cause and next step. Importing this room loads no Kubernetes library: the library takes half a second, and `--help` may
take 0.3 s.
"""

from tuneyard.cluster.address import Address
from tuneyard.cluster.connection import HubAccess, open_hub
from tuneyard.cluster.errors import HubError, Missing, NotAllowed, NotLoggedIn, Problem, Refused, Unreachable
from tuneyard.cluster.hub import Hub
from tuneyard.cluster.hub_cluster import Capacity, HubCluster
from tuneyard.cluster.hub_job import HubJob, TaskOutline
from tuneyard.cluster.shipping import CannotShip, Parcel, Shipment, shipment_of
from tuneyard.cluster.snapshot import Outlook, Snapshot, read_job, waiting_tasks
from tuneyard.cluster.storage_access import StorageAccess, storage_access
from tuneyard.cluster.submission import Submission
from tuneyard.cluster.submit import manifest_of, submit_shipment
from tuneyard.cluster.uploads import Sent
from tuneyard.cluster.usage import SkuUse, UsageReport, Used, usage_report, used_of

__all__ = [
    "Address",
    "CannotShip",
    "Capacity",
    "Hub",
    "HubAccess",
    "HubCluster",
    "HubError",
    "HubJob",
    "Missing",
    "NotAllowed",
    "NotLoggedIn",
    "Outlook",
    "Parcel",
    "Problem",
    "Refused",
    "Sent",
    "Shipment",
    "SkuUse",
    "Snapshot",
    "StorageAccess",
    "Submission",
    "TaskOutline",
    "Unreachable",
    "UsageReport",
    "Used",
    "manifest_of",
    "open_hub",
    "read_job",
    "shipment_of",
    "storage_access",
    "submit_shipment",
    "usage_report",
    "used_of",
    "waiting_tasks",
]
