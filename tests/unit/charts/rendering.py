"""What `helm template` makes of a chart, and what its roles grant."""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tests.testcluster.binaries import binary

CHARTS = Path(__file__).parents[3] / "charts"
HUB, MEMBER = "tuneyard-hub", "tuneyard-member"
NAMESPACE = "tuneyard-system"
HUB_VALUES: dict[str, Any] = {
    "output": "s3://models/jobs",
    "image": {"repository": "registry.example.com/tuneyard-hub"},
    "jobs": {"image": "registry.example.com/tuneyard:0.1.0-gpu"},
}
"""What nobody can leave out."""

Object = dict[str, Any]

# name -> chart and values: together they turn every switch of both charts.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "hub": (HUB, {}),
    "hub-small": (
        HUB,
        {
            "replicas": 1,
            "crds": {"install": False},
            "userRoles": {"create": False},
            "podDisruptionBudget": {"enabled": False},
            "logs": {"enabled": False},
        },
    ),
    "hub-few-secrets": (HUB, {"secretNamespaces": ["maps", "rides"], "userRoles": {"readers": ["system:authenticated"]}}),
    "hub-observed": (
        HUB,
        {
            "metrics": {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}, "dashboard": {"enabled": True}},
            "networkPolicy": {"enabled": True, "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]},
        },
    ),
    "hub-with-history": (HUB, {"postgresql": {"enabled": True, "storageClassName": "fast"}, "networkPolicy": {"enabled": True}}),
    "hub-with-own-database": (HUB, {"postgresql": {"external": {"secretName": "history"}}}),
    "hub-with-console": (
        HUB,
        {
            "console": {
                "enabled": True,
                "hosts": ["console.example.com"],
                "ingress": {"enabled": True, "className": "nginx", "tlsSecretName": "console-tls", "annotations": {"a": "b"}},
            },
            "metrics": {"serviceMonitor": {"enabled": True}},
        },
    ),
    "hub-with-console-behind-a-proxy": (
        HUB,
        {
            "console": {
                "enabled": True,
                "auth": "proxy",
                "keySecretName": "console-key",
                "hosts": ["console.example.com"],
                "proxy": {"secretName": "console-proxy", "groups": ["ml-team"], "networks": ["10.0.0.7/32"]},
                "from": [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}],
            },
            "networkPolicy": {"enabled": True},
        },
    ),
    "hub-is-member": (HUB, {"selfMember": {"enabled": True, "namespace": {"name": "jobs"}}}),
    "hub-placed": (
        HUB,
        {
            "image": {"digest": "sha256:" + "0" * 64, "pullSecrets": [{"name": "registry"}]},
            "nameNodes": ["namenode.example.com:9870"],
            "jobs": {"image": "registry.example.com/tuneyard:0.1-gpu"},
            "priorityClassName": "system-cluster-critical",
            "nodeSelector": {"pool": "system"},
            "tolerations": [{"key": "system", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "podLabels": {"team": "platform"},
            "podAnnotations": {"note": "here"},
            "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["store"]}],
            "extraArgs": ["--debug"],
            "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
            "extraEnvFrom": [{"secretRef": {"name": "storage"}}],
            "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
            "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ca"}],
            "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn"}},
        },
    ),
    "member": (MEMBER, {}),
    "member-bare": (
        MEMBER,
        {"crds": {"install": False}, "namespace": {"create": False}, "hub": {"token": {"create": False}}},
    ),
    "member-limited": (
        MEMBER,
        {
            "namespace": {"podSecurity": "privileged", "labels": {"team": "platform"}},
            "jobs": {"serviceAccountAnnotations": {"role": "jobs"}, "imagePullSecrets": [{"name": "registry"}]},
            "networkPolicy": {
                "kuberayNamespace": "kuberay",
                "extraIngress": [{"from": [{"namespaceSelector": {}}], "ports": [{"port": 8080}]}],
            },
            "resourceQuota": {"enabled": True, "hard": {"requests.nvidia.com/gpu": "64"}},
            "limitRange": {"enabled": True, "limits": [{"type": "Container", "defaultRequest": {"cpu": "1"}}]},
        },
    ),
    "member-closed": (MEMBER, {"networkPolicy": {"enabled": False}}),
}


def helm(*words: str, values: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    """A run of helm with values on its standard input. Its Kubernetes version is set: a helm from source believes in 1.20."""
    command = [binary("helm"), *words, "--kube-version=1.36.0", "--values=-"]
    return subprocess.run(command, input=json.dumps(values or {}), capture_output=True, text=True, check=False)


def with_required(chart: str, values: dict[str, Any]) -> dict[str, Any]:
    needed = HUB_VALUES if chart == HUB else {}
    return {**needed, **values, **({"image": {**needed["image"], **values.get("image", {})}} if needed else {})}


def render(chart: str, values: dict[str, Any] | None = None) -> list[Object]:
    """Every object of a release. Raises AssertionError with helm's words where it refuses."""
    done = helm("template", chart, str(CHARTS / chart), f"--namespace={NAMESPACE}", values=with_required(chart, values or {}))
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.load_all(done.stdout, Loader=yaml.CSafeLoader) if document]


@functools.cache
def render_variant(name: str) -> list[Object]:
    return render(*VARIANTS[name])


def of_kind(objects: Iterable[Object], *kinds: str) -> list[Object]:
    return [each for each in objects if each["kind"] in kinds]


def pods(objects: Iterable[Object]) -> Iterator[tuple[str, Object]]:
    """Name and pod spec of everything that makes pods."""
    for each in of_kind(objects, "Deployment", "StatefulSet", "DaemonSet", "Job"):
        yield each["metadata"]["name"], each["spec"]["template"]["spec"]


@dataclass(frozen=True, order=True)
class Grant:
    """`where`: a namespace, or `all namespaces`. `resource`: with its group, and the one name it is limited to, if any."""

    account: str
    where: str
    resource: str
    verbs: str


def grants(objects: Iterable[Object]) -> set[Grant]:
    """What bindings give to accounts, groups included."""
    objects = list(objects)
    roles = {
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]): each
        for each in of_kind(objects, "Role", "ClusterRole")
    }
    found: set[Grant] = set()
    for binding in of_kind(objects, "RoleBinding", "ClusterRoleBinding"):
        namespace = binding["metadata"].get("namespace")
        reference = binding["roleRef"]
        role = roles[reference["kind"], namespace if reference["kind"] == "Role" else None, reference["name"]]
        for subject in binding["subjects"]:
            account = f"{subject['namespace']}/{subject['name']}" if subject["kind"] == "ServiceAccount" else subject["name"]
            for rule in role["rules"]:
                for group in rule["apiGroups"]:
                    for resource in rule["resources"]:
                        named = f"{resource}{'.' + group if group else ''}" + "".join(f" {name}" for name in rule.get("resourceNames", []))
                        found.add(Grant(account, namespace or "all namespaces", named, ", ".join(sorted(rule["verbs"]))))
    return found
