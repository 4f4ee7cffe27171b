"""Objects as an attacker, a typing error or an older version would write them: sound ones, changed in one to three places."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import strategies as st
from tests.clusters.hubs import jobspec

API_VERSION = "tuneyard.dev/v1alpha1"
NOON = "2026-11-21T12:00:00Z"

_TEXTS = (
    *(
        "",
        "a",
        "²",
        "²²²",
        "٣",
        "nan",
        "inf",
        "auto",
        "True",
        "null",
        "../../secrets/x",
        "a/b",
        "a b",
        "\x1b[31m",
        "🦆",
        "-",
        ".",
        "%2e%2e",
    ),
    *("0001-01-01T00:00:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00", "2026-13-45T99:99:99Z", NOON, "2026-11-21"),
    *("9" * 300 + "s", "1e400", "-1s", "5m", "1" * 30 + "w", "9" * 18 + "Pi", "10Gi", "1k"),
    *("0 0 30 2 *", "* * * * *", "0 0 31 2,4 *", "R R * * *", "0 0 29 2 *", "59 23 * * 7#5", "Europe/Amsterdam", "s3://b/x", "h100-80gb"),
    *("x" * 5_000, "x" * 70_000),
)
_NUMBERS = (-1, 0, 1, 2, 7, 1.5, -0.5, 1000, 65_536, 10**9, 10**12, 2**53 + 1, 2**63 - 1, -(2**63), 1e-300, 1e300)


def _nested(levels: int) -> Any:
    """Lists in mappings in lists: deeper than any reader goes, and no deeper than the encoders of tests."""
    found: Any = 1
    for _ in range(levels // 2):
        found = [{"a": found}]
    return found


plain = st.one_of(st.sampled_from(_TEXTS), st.sampled_from(_NUMBERS), st.booleans(), st.none(), st.text(max_size=8))
nasty = st.one_of(
    plain,
    st.lists(plain, max_size=3),
    st.dictionaries(st.sampled_from(["name", "key", "min", "max", "kind", "x"]), plain, max_size=3),
    st.sampled_from([{"min": 1, "max": 10**12}, {"min": 5, "max": 1}, [[]], [{}], {"a": {"b": {"c": []}}}, [NOON] * 2000, _nested(100)]),
)


@st.composite
def changed(draw: st.DrawFn, sound: Any) -> Any:
    """A copy of `sound` with up to three places replaced, taken out, or doubled."""
    found = deepcopy(sound)
    for _ in range(draw(st.integers(0, 3))):
        places = list(_places(found))
        if not places:
            break
        holder, key = draw(st.sampled_from(places))
        how = draw(st.sampled_from(["replace", "replace", "replace", "remove", "double"]))
        if how == "remove":
            del holder[key]
        elif how == "double" and isinstance(holder, list):
            holder.append(deepcopy(holder[key]))
        else:
            holder[key] = deepcopy(draw(nasty))
    return found


def _places(value: Any) -> Any:
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(min(len(value), 5)):
            yield value, key
            yield from _places(value[key])


SCORE = {
    "model": {"name": "m"},
    "data": {"source": "s3://b/d.parquet", "prompt": "question"},
    "engine": {"tensorParallel": 2},
}
FULL_JOB: dict[str, Any] = {
    "team": "maps",
    "priority": "high",
    "preemptible": True,
    "deadline": "2h",
    "expectedDuration": "10m",
    "ttlAfterFinished": "1d",
    "retries": {"max": 3, "onUserError": "retry"},
    "placement": {"clusters": ["member-1"], "skus": ["h100-80gb"]},
    "image": "registry/x:1",
    "setup": ["pip install x"],
    "env": [{"name": "MODE", "value": "fast"}, {"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}}],
    "storage": {"output": "s3://b/out", "scratch": "10Gi"},
    "suspend": False,
    "cancelled": False,
    "tasks": [
        {"name": "data", "process": {"command": ["true"], "timeoutS": 5}},
        {**jobspec("x")["spec"]["tasks"][0], "dependsOn": ["data"], "resources": {"workers": {"min": 1, "max": 4}, "sku": ["h100-80gb"]}},
        {"name": "judge", "score": SCORE, "resources": {"instances": 2}},
        {"name": "search", "tune": {"task": "train", "budget": {"trials": 3}, "stepsPerTrial": 10}},
    ],
}
SMALL_JOB: dict[str, Any] = jobspec("x", workers=1)["spec"]
TEAM = {"quota": {"h100-80gb": 8}, "borrowingLimit": {"h100-80gb": 4}, "cohort": "all", "weight": 2.0, "gpuHours": 100, "members": ["ann"]}
SCHEDULE = {
    "cron": "*/5 * * * *",
    "timeZone": "Europe/Amsterdam",
    "concurrency": "forbid",
    "startingDeadline": "10m",
    "history": 2,
    "waitFor": {"path": "s3://b/{{ run.date - 1d | %Y/%m/%d }}/_SUCCESS", "timeout": "1h"},
    "regression": {"perplexity": {"worseBy": "2%", "above": 9.5}, "mine": {"worseByAbsolute": 1, "better": "higher"}},
    "notify": {"webhookFrom": {"secretKeyRef": {"name": "hook", "key": "url"}}, "form": "slack", "on": ["regressed"]},
    "runNow": NOON,
    "backfill": {"from": "2026-11-01", "to": "2026-11-03", "parallel": 2, "id": "a"},
    "template": {"labels": {"a": "b"}, "spec": SMALL_JOB},
}
TEMPLATE = {"description": "d", "train": {"batch": {"global": 8}}, "score": {}, "resources": {"workers": 2}}
CLUSTER: dict[str, Any] = {
    "endpoint": {"server": "https://127.0.0.1:1", "kubeconfigSecret": {"name": "nobody", "key": "kubeconfig"}},
    "skus": [
        {
            "name": "a100-80gb",
            "nodes": 4,
            "gpusPerNode": 8,
            "pricePerGpuHour": 2.5,
            "nodeSelector": {"a": "b"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
        }
    ],
    "taints": [{"key": "gpu", "value": "x", "effect": "NoSchedule"}],
    "network": {"bandwidthGbPerS": 10.0, "nccl": {"NCCL_DEBUG": "INFO"}},
    "storage": ["s3://b/"],
    "cordoned": False,
    "localQueue": "q",
    "namespace": "tuneyard",
    "head": {"cpu": 0.5, "memory": "2Gi"},
    "image": "registry/x:1",
    "podTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"tolerations": [{"operator": "Exists"}], "containers": [{"env": []}]}},
}
KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1", "certificate-authority-data": "eA=="}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
}
PLACEMENT = {"cluster": "member-1", "sku": "h100-80gb", "workers": 1, "gpus": 1, "pods": 1, "nodes": {"gpu-0": 1}, "seconds": 60.0}
ATTEMPT = {
    "number": 1,
    "task": "train",
    "token": 1,
    "name": "nobody-1",
    "placement": PLACEMENT,
    "phase": "Running",
    "created": True,
    "placedAt": NOON,
    "startedAt": NOON,
    "lastStep": 5,
    "checkpointStep": 4,
    "checkpointAt": NOON,
}
JOB_STATUS: dict[str, Any] = {
    "phase": "Running",
    "message": "runs",
    "observedGeneration": 1,
    "conditions": [{"type": "Valid", "status": "True", "reason": "Accepted", "lastTransitionTime": NOON}],
    "placement": PLACEMENT,
    "attempts": [{**ATTEMPT, "endedAt": NOON, "failure": "NodeLost", "cleaned": True}, {**ATTEMPT, "number": 2, "token": 2}],
    "tasks": [{"name": "train", "phase": "Running", "progress": {"step": 5, "of": 10}, "metrics": {"loss": 1.0}, "artifacts": ["s3://a"]}],
    "progress": {"step": 5, "of": 10, "summary": "5/10"},
    "usage": {"gpuHours": 1.0, "cost": 2.0},
    "startedAt": NOON,
}
TEAM_STATUS = {"inUse": {"h100-80gb": 1}, "gpuHoursUsed": 5.0, "usedGpuSeconds": {"h100-80gb": 100.0}, "usageAt": NOON}
SCHEDULE_STATUS: dict[str, Any] = {
    "lastRun": NOON,
    "nextRun": NOON,
    "active": ["a"],
    "message": "m",
    "followed": "*/5 * * * * Europe/Amsterdam",
    "conditions": [{"type": "Regressed", "status": "True", "reason": "Worse", "lastTransitionTime": NOON}],
    "waiting": [{"name": "x-1", "due": NOON, "since": NOON, "path": "s3://a/b"}],
    "runs": [
        {"name": "x-2", "due": NOON, "verdict": "good", "figures": [{"task": "judge", "name": "perplexity", "value": 2.0, "low": 1.0}]},
        {"name": "x-3", "due": NOON, "kind": "backfill", "phase": "Running"},
    ],
    "backfill": {"key": "r1", "last": NOON, "started": 1, "of": 3},
}
CLUSTER_STATUS = {"healthy": True, "heartbeat": NOON, "returnedAt": [NOON, NOON], "conditions": [], "free": "x"}
REPORT: dict[str, Any] = {
    "phase": "Running",
    "message": "m",
    "observedAt": NOON,
    "stage": "loading",
    "progress": {"step": 3, "of": 10, "etaS": 5.0, "loss": 2.0, "summary": "3/10"},
    "ranks": [{"rank": 0, "pod": "p", "node": "gpu-0"}],
    "worldSize": 1,
    "checkpointStep": 2,
    "metrics": {"loss": 1.0},
    "artifacts": ["s3://a"],
}
FAILED_REPORT = {**REPORT, "phase": "Failed", "failure": {"kind": "Network", "message": "m", "node": "gpu-0", "rank": 1, "logTail": "x"}}
RAY_STATUS = {"jobStatus": "RUNNING", "jobDeploymentStatus": "Running", "reason": "", "message": "", "startTime": NOON}
NODE: dict[str, Any] = {
    "metadata": {"labels": {"kubernetes.io/hostname": "x"}},
    "spec": {"unschedulable": False, "taints": [{"key": "gpu", "value": "a", "effect": "NoSchedule"}]},
    "status": {"allocatable": {"nvidia.com/gpu": "8", "cpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]},
}


@st.composite
def acts(draw: st.DrawFn) -> tuple[str, Any, Any]:
    """What somebody writes: the kind, its spec, and a status (None: none is written)."""
    kind, spec, status = draw(
        st.sampled_from(
            [
                ("jobspecs", FULL_JOB, JOB_STATUS),
                ("jobspecs", SMALL_JOB, JOB_STATUS),
                ("schedules", SCHEDULE, SCHEDULE_STATUS),
                ("teams", TEAM, TEAM_STATUS),
                ("clusters", CLUSTER, CLUSTER_STATUS),
                ("modeltemplates", TEMPLATE, None),
                ("reports", None, REPORT),
                ("reports", None, FAILED_REPORT),
                ("rayjobs", None, RAY_STATUS),
                ("statuses", None, JOB_STATUS),
                ("nodes", NODE, None),
                ("kubeconfigs", KUBECONFIG, None),
            ]
        )
    )
    told = status is not None and (spec is None or draw(st.booleans()))
    return kind, draw(changed(spec)) if spec is not None else None, draw(changed(status)) if told else None
