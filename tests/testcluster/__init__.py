"""Real Kubernetes clusters on one Linux machine, without Docker: for tests, and for trying Tuneyard out.

A `Hub` is an API server with its controllers. A `Member` adds a scheduler and either a real node (kubelet, containerd, CoreDNS; pods
are real processes) or fake ones. All that a cluster is lies in its state folder: whoever opens the folder can stop, break or remove the
cluster, also after the process that started it was killed. `python -m tests.testcluster up` starts clusters with Tuneyard on them.
"""

from tests.testcluster.hub import Hub
from tests.testcluster.member import Member
from tests.testcluster.unavailable import Unavailable

__all__ = ["Hub", "Member", "Unavailable"]
