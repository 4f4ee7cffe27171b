"""API servers as this program uses them: plain JSON objects, explicit rates, errors that can be told apart, caches that follow a kind.

kubernetes-asyncio brings credentials and transport; its typed models are left out, because turning every object into one and back
costs more than all else that a controller does.
"""

from tuneyard_operators.kube.cache import Cache, Key, key_of
from tuneyard_operators.kube.connection import Connection, from_kubeconfig, from_kubeconfig_text, in_cluster
from tuneyard_operators.kube.election import Election
from tuneyard_operators.kube.errors import ApiError, Conflict, Expired, Forbidden, Invalid, Missing, Unreachable
from tuneyard_operators.kube.kinds import (
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
    SERVICE_ACCOUNT,
    SUBJECT_ACCESS_REVIEW,
    TEAM,
    Kind,
)

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
    "SERVICE_ACCOUNT",
    "SUBJECT_ACCESS_REVIEW",
    "TEAM",
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
    "Unreachable",
    "from_kubeconfig",
    "from_kubeconfig_text",
    "in_cluster",
    "key_of",
]
