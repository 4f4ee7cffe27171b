"""Adds KubeRay's autoscaler to the head pod of an attempt with a varying number of data workers.

KubeRay adds a container `autoscaler`, which patches the RayCluster, to the head pod, and binds a Role of its own to the head pod's account.
That Role covers all pods and Ray clusters of the namespace, but the head also runs the code of a job's author. The head pod therefore gets
the autoscaler's account, and only the autoscaler's container, whose image no job can choose, mounts its token. The head's own container
mounts the token of the account that jobs always have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuneyard.api import Cluster, DataService, JobSpec
from tuneyard_operators.rendering.container import plain, security_context
from tuneyard_operators.rendering.merge import merged

AUTOSCALER = "autoscaler"
"""KubeRay's name for the container."""
AUTOSCALER_ACCOUNT = "tuneyard-autoscaler"
"""ServiceAccount of the member's chart. On a member without it, a job has its greatest number of data pods throughout."""
JOB_TOKEN = "tuneyard-job-token"
"""Secret of the member's chart, with a token of the account of jobs."""
IDLE_S = 10
"""Seconds after which a pod without a data worker ends. The service itself ends a worker after a minute without work."""
_ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
_TOKEN_S = 3607
"""Lifetime of the token: the kubelet's own choice for accounts. The kubelet renews it."""
_HEADLESS_S = 5
"""The autoscaler ignores SIGTERM, and ends after this time without a head. Ray's default of 60 s would delay the end of the pod."""
_OPTIONS = ("env", "volumeMounts", "securityContext")
"""Fields of a container that KubeRay's autoscaler options accept."""


def data_service(job: JobSpec, task: str) -> DataService | None:
    """The ingestion service of a train or rank task."""
    training = job.spec.gang_of(job.spec.task(task)).training
    return training.data.service if training is not None else None


def wants_autoscaler(job: JobSpec, task: str, cluster: Cluster, image: str) -> bool:
    """Whether the data pods of a task should be autoscaled on `cluster`, if it has the account. Kueue admits fixed numbers of pods only.

    `image`: the autoscaler's image, which a job must not choose; empty if neither the cluster nor the hub names one.
    """
    service = data_service(job, task)
    return service is not None and service.min_workers < service.max_workers and cluster.spec.local_queue is None and bool(image)


def autoscaling(cluster: Cluster, image: str) -> dict[str, Any]:
    """Fields of a RayCluster that make KubeRay add its autoscaler."""
    container = {
        "env": plain({"HOME": "/tmp", "RAY_USAGE_STATS_ENABLED": "0", "RAY_gcs_rpc_server_reconnect_timeout_s": str(_HEADLESS_S)}),
        "volumeMounts": [_mount("autoscaler-account")],
        "securityContext": security_context(),
    }
    over: Mapping[str, Any] = next(iter(cluster.spec.pod_template.get("spec", {}).get("containers", [])), {})
    options = merged(container, {key: over[key] for key in _OPTIONS if key in over})
    return {
        "enableInTreeAutoscaling": True,
        "autoscalerOptions": {
            "version": "v2",
            "upscalingMode": "Default",
            "idleTimeoutSeconds": IDLE_S,
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "512Mi"}},
            **options,
        },
    }


def with_accounts_apart(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A head pod's spec with the autoscaler's account for the pod, and the token of jobs in its own container."""
    (container,) = spec["containers"]
    account = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": _TOKEN_S}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ]
    volumes = [
        {"name": "job-account", "secret": {"secretName": JOB_TOKEN}},
        {"name": "autoscaler-account", "projected": {"sources": account}},
    ]
    return {
        **spec,
        "containers": [{**container, "volumeMounts": [*container["volumeMounts"], _mount("job-account")]}],
        "volumes": [*spec["volumes"], *volumes],
        "serviceAccountName": AUTOSCALER_ACCOUNT,
        "automountServiceAccountToken": False,
    }


def _mount(volume: str) -> dict[str, Any]:
    return {"name": volume, "mountPath": _ACCOUNT_FOLDER, "readOnly": True}
