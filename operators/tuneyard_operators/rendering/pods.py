"""Renders the pods of an attempt: the head, the workers of the gang, and those with data workers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuneyard.api import Attempt, Cluster, DataService, JobSpec, PlacementStatus, Sku, Task
from tuneyard.api.serve import SERVED_URL
from tuneyard.api.worker_counts import gangs_in
from tuneyard.catalog import given_json, gpu_resource, kinds
from tuneyard.catalog.gpu_facts import NVIDIA_RESOURCE
from tuneyard.data.shared.place import PLACE, SIZE
from tuneyard.runtime.sessions.stacks import DATA_RESOURCE, ENGINES, SERVERS, TRAINING
from tuneyard.schedules import LastGood
from tuneyard.tuning.passed_on import PAST_RUNS
from tuneyard_operators.rendering.autoscaler import data_service, with_accounts_apart
from tuneyard_operators.rendering.container import (
    SCRATCH,
    WARM_SERVERS,
    command,
    from_field,
    job_env,
    lifecycle,
    literal,
    plain,
    security_context,
)
from tuneyard_operators.rendering.isolation import ISOLATED
from tuneyard_operators.rendering.merge import merged_pod
from tuneyard_operators.rendering.names import labels_of
from tuneyard_operators.rendering.service import url

DATA_GROUP = "data"
"""Name of the group of pods with data workers."""
USER = 10001
SERVICE_ACCOUNT = "tuneyard-job"
_RAY_TOKEN = "RAY_AUTH_TOKEN"
"""KubeRay's variable with the token. The log shipper hides its value like any other secret."""
_NO_GPUS = plain({"NVIDIA_VISIBLE_DEVICES": "void"})
"""For containers that ask for no GPU, after a job's own variables. NVIDIA's runtime would give them all GPUs of the node: images for GPUs
say so, and a job may.
"""
_GIB = 1024**3
_HEAD_MEMORY_OF_GANG = _GIB
"""Memory of the head for each gang beside the first: a process with Ray Train and torch, to which the gang's agents report."""


@dataclass(frozen=True)
class Pods:
    """Its arguments are those of `rayjob`; `image`: of its containers."""

    job: JobSpec
    uid: str
    attempt: Attempt
    placement: PlacementStatus
    cluster: Cluster
    output: str
    image: str
    isolated: bool
    autoscaled: bool
    stop_grace_s: float
    traceparent: str
    past_runs: str

    @property
    def sku(self) -> Sku:
        return next(sku for sku in self.cluster.spec.skus if sku.name == self.placement.sku)

    @property
    def slots(self) -> int:
        """Worker slots (GPUs) of one worker pod."""
        return self.placement.gpus // max(1, self.placement.pods)

    @property
    def task(self) -> Task:
        return self.job.spec.task(self.attempt.task)

    def head(self) -> dict[str, Any]:
        memory = self.cluster.spec.head.memory + (self._gangs() - 1) * _HEAD_MEMORY_OF_GANG
        asked = {"cpu": _quantity(self.cluster.spec.head.cpu), "memory": str(memory)}
        container = {
            **self._container("ray-head", [*self._driver_env(), *_NO_GPUS]),
            "resources": {"requests": asked, "limits": {"memory": asked["memory"]}},
            "ports": [{"containerPort": 6379, "name": "gcs-server"}, {"containerPort": 8265, "name": "dashboard"}],
        }
        spec = self._spec(container, self.cluster.spec.head.node_selector)
        own = {"serviceAccountName": SERVICE_ACCOUNT, "automountServiceAccountToken": True}
        return self._template(with_accounts_apart(spec) if self.autoscaled else spec | own)

    def _gangs(self) -> int:
        """Gangs that the head conducts: one, or those of a search."""
        tune = self.task.tune
        return gangs_in(tune, self.job.spec.gang_of(self.task), self.placement.workers) if tune is not None else 1

    def worker_group(self) -> dict[str, Any]:
        gpus = 0 if self.sku.name == "cpu" else self.slots
        cores = max(self.slots, math.ceil((self.sku.cpu_per_gpu or 1) * self.slots))
        return {
            "groupName": "gang",
            "replicas": self.placement.pods,
            "minReplicas": self.placement.pods,
            "maxReplicas": self.placement.pods,
            "rayStartParams": {"num-cpus": str(cores), "num-gpus": str(gpus)},
            "template": self._worker(),
        }

    def data_groups(self) -> list[dict[str, Any]]:
        """The pods of an ingestion service, on the nodes of heads: each has one data worker, and no slot for ranks."""
        service = data_service(self.job, self.attempt.task)
        if service is None:
            return []
        container = {**self._container("ray-worker", _NO_GPUS), "resources": _data_resources(service)}
        spec = self._spec(container, self.cluster.spec.head.node_selector) | {"automountServiceAccountToken": False}
        group = {
            "groupName": DATA_GROUP,
            "replicas": service.min_workers if self.autoscaled else service.max_workers,
            "minReplicas": service.min_workers if self.autoscaled else service.max_workers,
            "maxReplicas": service.max_workers,
            "rayStartParams": {"num-cpus": "0", "num-gpus": "0", "resources": f"'{json.dumps({DATA_RESOURCE: 1})}'"},
            "template": self._template(spec),
        }
        return [group]

    def _worker(self) -> dict[str, Any]:
        no_gpus = _NO_GPUS if self.sku.name == "cpu" else []
        container = {**self._container("ray-worker", no_gpus, warm=self._warm()), "resources": self._worker_resources()}
        container["volumeMounts"] = [*container["volumeMounts"], {"name": "shared-memory", "mountPath": "/dev/shm"}]
        spec = self._spec(container, self.sku.node_selector)
        spec["volumes"] = [
            *spec["volumes"],
            {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": str(self.cluster.spec.shared_memory)}},
        ]
        spec["tolerations"] = [*self._tolerations(), *self.sku.tolerations]
        spec["affinity"] = self._affinity()
        return self._template(spec | {"automountServiceAccountToken": False})

    def _worker_resources(self) -> dict[str, Any]:
        requests: dict[str, str] = {}
        limits: dict[str, str] = {}
        if self.sku.cpu_per_gpu is not None:
            requests["cpu"] = _quantity(self.sku.cpu_per_gpu * self.slots)
        if self.sku.memory_per_gpu is not None:
            requests["memory"] = limits["memory"] = str(self.sku.memory_per_gpu * self.slots)
        if self.counted:
            limits[gpu_resource(self.sku)] = str(self.slots)
        return {"requests": requests, "limits": limits}

    @property
    def counted(self) -> bool:
        """Whether Kubernetes counts the slots: always for GPUs; for the SKU `cpu` only if the cluster names a resource for its slots."""
        return self.sku.name != "cpu" or gpu_resource(self.sku) != NVIDIA_RESOURCE

    def _affinity(self) -> dict[str, Any]:
        """An affinity for the nodes of the placement: the member's scheduler may choose among these only."""
        term = {"key": "kubernetes.io/hostname", "operator": "In", "values": sorted(self.placement.nodes)}
        return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}}}

    def _tolerations(self) -> list[dict[str, Any]]:
        return [{"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect} for taint in self.cluster.spec.taints]

    def _template(self, spec: dict[str, Any]) -> dict[str, Any]:
        labels = self._labels() | ({ISOLATED: "true"} if self.isolated else {})
        metadata = {"labels": labels, "annotations": {"ray.io/overwrite-container-cmd": "true"}}
        return merged_pod({"metadata": metadata, "spec": spec}, self.cluster.spec.pod_template)

    def _labels(self) -> dict[str, str]:
        return labels_of(self.job.metadata.name, self.job.metadata.namespace, self.uid, self.attempt.task, self.attempt.number)

    def _spec(self, container: dict[str, Any], node_selector: Mapping[str, str]) -> dict[str, Any]:
        spec: dict[str, Any] = {
            "restartPolicy": "Never",  # a failed pod is evidence, and KubeRay replaces it
            "terminationGracePeriodSeconds": math.ceil(self.stop_grace_s),
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "runAsGroup": USER,
                "fsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "volumes": [{"name": "scratch", **self._scratch()}],
        }
        if node_selector:
            spec["nodeSelector"] = dict(node_selector)
        if self.cluster.spec.image_pull_secrets:
            spec["imagePullSecrets"] = [{"name": name} for name in self.cluster.spec.image_pull_secrets]
        return spec

    def _scratch(self) -> dict[str, Any]:
        size = self.job.spec.storage.scratch
        storage_class = self.cluster.spec.scratch_storage_class
        if storage_class is None:
            return {"emptyDir": {"sizeLimit": str(size)} if size is not None else {}}
        claim = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": str(size if size is not None else 10 * _GIB)}},
        }
        return {"ephemeral": {"volumeClaimTemplate": {"spec": claim}}}

    def _container(self, name: str, env: list[dict[str, Any]], *, warm: str = "") -> dict[str, Any]:
        """The container of a pod. `warm`: the stack that is loaded before Ray starts, or empty."""
        return literal(
            {
                "name": name,
                "image": self.image,
                "imagePullPolicy": "IfNotPresent",
                "command": command(self.job.spec.setup, wait_for_head=name == "ray-worker", warm=warm),
                "lifecycle": lifecycle(of_worker=name == "ray-worker"),
                "securityContext": security_context(),
                "env": list({variable["name"]: variable for variable in (*self._env(), *env)}.values()),
                "volumeMounts": [{"name": "scratch", "mountPath": SCRATCH}],
                "terminationMessagePolicy": "FallbackToLogsOnError",
            }
        )

    def _warm(self) -> str:
        """The stack that worker pods load before Ray starts. None for vLLM on GPUs: it starts processes of its own."""
        on_gpu = self.sku.name != "cpu"
        if self.task.score is not None:
            source = self.task.score.model.from_task
            ranks = source is not None and self.job.spec.task(source).rank is not None  # a ranker needs no engine
            return "" if on_gpu or ranks or self.task.endpoint is not None else f"{ENGINES} {WARM_SERVERS}/{ENGINES}"
        train = self.job.spec.gang_of(self.task).training
        if train is None:
            return ""
        options = (" --gpu" if on_gpu else "") + (" --quantised" if train.uses_bitsandbytes else "")
        return f"{TRAINING} {WARM_SERVERS}/{TRAINING}{options}"

    def _env(self) -> list[dict[str, Any]]:
        """Variables of every container. Later entries win, so that a job cannot change the platform's own variables."""
        network = self.cluster.spec.network
        given = kinds().find(self.sku.name)
        figures = {"TUNEYARD_GPUS": given_json([given])} if given is not None and given.basis == "given" else {}
        interface = {name: network.interface for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME") if network.interface}
        return [
            *plain({**interface, **network.nccl, "HOME": SCRATCH, "RAY_USAGE_STATS_ENABLED": "0"}),
            *job_env(self.cluster.spec.env, None),
            *job_env(self.job.spec.env, self.attempt.name),
            *plain(
                {
                    "RAY_TRAIN_V2_ENABLED": "1",
                    "RAY_AUTH_MODE": "token",  # as KubeRay sets it; without a token from KubeRay, Ray does not start
                    **figures,
                    **({"TRACEPARENT": self.traceparent} if self.traceparent else {}),
                    "TUNEYARD_SCRATCH": SCRATCH,
                    SERVERS: WARM_SERVERS,
                    "TUNEYARD_SECRETS": ",".join([*self._secret_names(), _RAY_TOKEN]),
                }
            ),
            from_field("TUNEYARD_POD", "metadata.name"),
            from_field("TUNEYARD_NODE", "spec.nodeName"),
        ]

    def _secret_names(self) -> list[str]:
        return [variable.name for variable in (*self.cluster.spec.env, *self.job.spec.env) if variable.value_from is not None]

    def _driver_env(self) -> list[dict[str, Any]]:
        bandwidth = self.cluster.spec.network.bandwidth_gb_per_s
        several = self.placement.pods > 1 and bandwidth is not None
        return plain(
            {
                "TUNEYARD_JOB": json.dumps(_written(self.job), separators=(",", ":"), sort_keys=True),
                "TUNEYARD_TASK": self.attempt.task,
                "TUNEYARD_ATTEMPT": str(self.attempt.number),
                "TUNEYARD_ATTEMPT_NAME": self.attempt.name,
                "TUNEYARD_NAMESPACE": self.cluster.spec.namespace,
                "TUNEYARD_LABELS": json.dumps(self._labels(), separators=(",", ":"), sort_keys=True),
                "TUNEYARD_RUN": self.uid,
                "TUNEYARD_OUTPUT": self.output,
                "TUNEYARD_SKU": self.placement.sku,
                "TUNEYARD_WORKERS": str(self.placement.workers),
                "TUNEYARD_STOP_GRACE_S": f"{self.stop_grace_s:g}",
                **({"TUNEYARD_PREFLIGHT_GB_PER_S": str(bandwidth)} if several else {}),
                **_shared_shards(self.cluster),
                **({SERVED_URL: url(self._labels(), self.cluster.spec.namespace)} if self.task.serve is not None else {}),
                **({PAST_RUNS: self.past_runs} if self.past_runs else {}),
                **({"TUNEYARD_PRICE_PER_GPU_HOUR": str(self.sku.price_per_gpu_hour)} if self.sku.price_per_gpu_hour else {}),
            }
        )


def _shared_shards(cluster: Cluster) -> dict[str, str]:
    """The variables that name the place of shared shards. Both are set, so that a job's own variables change neither."""
    place = cluster.spec.shared_shards
    if place is None:
        return {}
    return {PLACE: place.uri, SIZE: "" if place.size is None else str(place.size)}


def _written(job: JobSpec) -> dict[str, Any]:
    """The JobSpec in the form of a file: without status, and with only the metadata that Tuneyard reads."""
    whole = job.to_yaml_dict()
    metadata = {key: value for key, value in whole["metadata"].items() if key in ("name", "namespace", "labels")}
    against = LastGood.of(job.metadata.annotations)
    if against is not None:
        metadata["annotations"] = against.annotations
    return {"apiVersion": job.api_version, "kind": job.kind, "metadata": metadata, "spec": whole["spec"]}


def _quantity(cores: float) -> str:
    return f"{round(cores * 1000)}m"


def _data_resources(service: DataService) -> dict[str, Any]:
    memory = f"{math.ceil(service.memory_gb * 1000)}M"
    return {"requests": {"cpu": _quantity(service.cpus), "memory": memory}, "limits": {"memory": memory}}
