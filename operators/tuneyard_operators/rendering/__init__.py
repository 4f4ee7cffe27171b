"""Renders attempts as KubeRay's RayJobs, with their Secrets and NetworkPolicies.

Pure: the same attempt gives the same object, byte for byte.
"""

from tuneyard_operators.rendering.autoscaler import AUTOSCALER, AUTOSCALER_ACCOUNT, JOB_TOKEN, wants_autoscaler
from tuneyard_operators.rendering.door import door, door_name
from tuneyard_operators.rendering.isolation import ISOLATED, network_policy
from tuneyard_operators.rendering.names import ATTEMPT, DOOR, JOB, JOB_LABELS, NAMESPACE_LABEL, TASK, UID, attempt_name, labels_of
from tuneyard_operators.rendering.pods import DATA_GROUP
from tuneyard_operators.rendering.rayjob import Defaults, platform_image, rayjob
from tuneyard_operators.rendering.secrets import SecretKey, needed_secrets, secret
from tuneyard_operators.rendering.service import service

__all__ = [
    "ATTEMPT",
    "AUTOSCALER",
    "AUTOSCALER_ACCOUNT",
    "DATA_GROUP",
    "DOOR",
    "ISOLATED",
    "JOB",
    "JOB_LABELS",
    "JOB_TOKEN",
    "NAMESPACE_LABEL",
    "TASK",
    "UID",
    "Defaults",
    "SecretKey",
    "attempt_name",
    "door",
    "door_name",
    "labels_of",
    "needed_secrets",
    "network_policy",
    "platform_image",
    "rayjob",
    "secret",
    "service",
    "wants_autoscaler",
]
