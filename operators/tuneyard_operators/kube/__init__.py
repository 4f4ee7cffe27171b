"""The hub's transport to API servers: connections with explicit rates, caches that follow a kind, the election of a leader.

Requests, errors and events are those of `tuneyard.kubernetes`. kubernetes-asyncio brings credentials. Its typed models are not used: the
conversion of every object costs more than all other work of a controller.
"""

from tuneyard.kubernetes import (
    AlreadyExists,
    ApiError,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    Key,
    Kind,
    Missing,
    NotServed,
    Unintelligible,
    Unreachable,
    key_of,
)
from tuneyard.kubernetes.kinds import (
    API_SERVICE,
    ATTEMPT_REPORT,
    CLUSTER,
    CONFIG_MAP,
    EVENT,
    JOBSPEC,
    LEASE,
    MODEL_TEMPLATE,
    NAMESPACE,
    NETWORK_POLICY,
    NODE,
    POD,
    RAYJOB,
    SCHEDULE,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    SUBJECT_ACCESS_REVIEW,
    TEAM,
)
from tuneyard_operators.kube.cache import Cache
from tuneyard_operators.kube.connection import Connection, from_kubeconfig, from_kubeconfig_text, in_cluster
from tuneyard_operators.kube.election import Election
from tuneyard_operators.kube.shares import Shares

__all__ = [
    "API_SERVICE",
    "ATTEMPT_REPORT",
    "CLUSTER",
    "CONFIG_MAP",
    "EVENT",
    "JOBSPEC",
    "LEASE",
    "MODEL_TEMPLATE",
    "NAMESPACE",
    "NETWORK_POLICY",
    "NODE",
    "POD",
    "RAYJOB",
    "SCHEDULE",
    "SECRET",
    "SERVICE",
    "SERVICE_ACCOUNT",
    "SUBJECT_ACCESS_REVIEW",
    "TEAM",
    "AlreadyExists",
    "ApiError",
    "Cache",
    "Conflict",
    "Connection",
    "Election",
    "Expired",
    "Forbidden",
    "Invalid",
    "Key",
    "Kind",
    "Missing",
    "NotServed",
    "Shares",
    "Unintelligible",
    "Unreachable",
    "from_kubeconfig",
    "from_kubeconfig_text",
    "in_cluster",
    "key_of",
]
