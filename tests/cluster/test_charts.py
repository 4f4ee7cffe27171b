"""Both charts on a real API server: installed, joined, upgraded, removed; and rights that are those of the charts and no more."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.testcluster import Member, Unavailable, kuberay
from tests.testcluster.binaries import binary
from tests.testcluster.fake_nodes import FakeNodes
from tests.testcluster.waiting import wait_for
from tests.unit.charts.rendering import CHARTS, HUB, HUB_VALUES, MEMBER, VARIANTS, Grant, grants, render, render_variant

from tuneyard.cluster.log_api import LOG_GROUP

SYSTEM, JOBS = "tuneyard-system", "tuneyard"
WITH_CONSOLE = {**HUB_VALUES, "console": {"enabled": True}}
GROUPS = ["system:serviceaccounts", "system:authenticated"]
"""Of every account."""
VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
JOBSPEC = {
    "apiVersion": "tuneyard.dev/v1alpha1",
    "kind": "JobSpec",
    "metadata": {"name": "kept", "namespace": "default"},
    "spec": {"tasks": [{"name": "say", "process": {"command": ["true"]}}]},
}


@dataclass(frozen=True)
class Installed:
    cluster: Member
    notes: dict[str, str]
    """What helm printed, by chart."""
    anyone: dict[str, frozenset[tuple[str, str]]] = field(default_factory=dict)
    """What every account may do, by namespace: asked once."""


def helm(cluster: Member, *words: str, values: dict[str, Any] | None = None) -> str:
    """What helm prints. Raises AssertionError with its words where it fails."""
    command = [binary("helm"), "--kubeconfig", str(cluster.kubeconfig), "--namespace", SYSTEM, *words]
    if values is not None:
        command.append("--values=-")
    home = {**os.environ, "HELM_CACHE_HOME": str(cluster.folder / "helm"), "HELM_CONFIG_HOME": str(cluster.folder / "helm")}
    done = subprocess.run(command, input=json.dumps(values or {}), capture_output=True, text=True, check=False, env=home)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Member]:
    """One API server with kinds of KubeRay, and a node that exists in it alone: pods of the hub are scheduled, and never start."""
    member = Member("charts", tmp_path_factory.mktemp("charts") / "cluster", fake=(FakeNodes("gpu", 1),), with_kuberay=False)
    try:
        member.start()
        member.apply(*kuberay.crds("rayjobs", "rayclusters"))
    except Unavailable as reason:
        member.close()
        pytest.skip(f"NO CLUSTER, charts were not installed: {reason}")
    yield member
    member.close()


@pytest.fixture(scope="module")
def installed(cluster: Member) -> Installed:
    notes = {
        HUB: helm(cluster, "install", HUB, str(CHARTS / HUB), "--create-namespace", values=WITH_CONSOLE),
        MEMBER: helm(cluster, "install", MEMBER, str(CHARTS / MEMBER)),
    }
    return Installed(cluster, notes)


# --- rights


def resources(cluster: Member) -> list[tuple[str, str, bool]]:
    """Group, resource (with subresource) and whether it is namespaced, of everything that the API server has."""
    found = []
    groups = [
        ("", "/api/v1"),
        *((group["name"], f"/apis/{group['preferredVersion']['groupVersion']}") for group in cluster.api.get("/apis")["groups"]),
    ]
    groups = [(name, path) for name, path in groups if name != LOG_GROUP]  # no pod of the hub runs here to serve it
    for group, path in groups:
        found += [(group, each["name"], each["namespaced"]) for each in cluster.api.get(path)["resources"]]
    return [*found, (LOG_GROUP, "jobspecs/log", True)]


def allowed(cluster: Member, account: str, namespace: str) -> frozenset[tuple[str, str]]:
    """Every resource (named as in Grant) and verb that an account may use in a namespace, as the API server lists its rules."""
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace}}
    as_account = [f"--as={user_of(account)}", *(f"--as-group={group}" for group in GROUPS)]
    status = json.loads(cluster.kubectl("create", *as_account, "--validate=false", "-f", "-", "-o", "json", stdin=json.dumps(review)))[
        "status"
    ]
    assert not status["incomplete"]
    rules = [rule for rule in status["resourceRules"] if not rule.get("resourceNames")]
    return frozenset(
        (named(group, resource), verb)
        for group, resource, _ in resources(cluster)
        for verb in VERBS
        if any(covers(rule, group, resource, verb) for rule in rules)
    )


def user_of(account: str) -> str:
    namespace, name = account.split("/")
    return f"system:serviceaccount:{namespace}:{name}"


def named(group: str, resource: str) -> str:
    return f"{resource}.{group}" if group else resource


def covers(rule: dict[str, list[str]], group: str, resource: str, verb: str) -> bool:
    """Whether a rule without names of objects allows a verb."""
    wanted = {"verbs": {verb, "*"}, "apiGroups": {group, "*"}, "resources": {resource, "*", f"*/{resource.partition('/')[2]}"}}
    return all(not accepted.isdisjoint(rule.get(field) or []) for field, accepted in wanted.items())


def may(cluster: Member, account: str, namespace: str, resource: tuple[str, str, bool], verb: str) -> bool:
    """Whether the API server would let an account use a verb on all objects of a resource."""
    group, name, namespaced = resource
    plain, _, subresource = name.partition("/")
    where = {"namespace": namespace} if namespaced else {}
    asked = {"group": group, "resource": plain, "subresource": subresource, "verb": verb, **where}
    review = {"spec": {"user": user_of(account), "groups": GROUPS, "resourceAttributes": asked}}
    return bool(cluster.api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]["allowed"])


def granted(expected: set[Grant], account: str, namespace: str) -> set[tuple[str, str]]:
    return {
        (each.resource, verb)
        for each in expected
        if each.account == account and each.where in (namespace, "all namespaces") and " " not in each.resource
        for verb in each.verbs.split(", ")
    }


@pytest.mark.parametrize(
    ("chart", "account"), [(HUB, f"{SYSTEM}/tuneyard-hub"), (MEMBER, f"{JOBS}/tuneyard-hub"), (MEMBER, f"{JOBS}/tuneyard-job")]
)
@pytest.mark.parametrize("namespace", [SYSTEM, JOBS, "kube-system"])
def test_an_account_may_do_what_its_chart_grants_and_nothing_more(installed: Installed, chart: str, account: str, namespace: str) -> None:
    expected = grants(render(chart))

    if namespace not in installed.anyone:
        installed.anyone[namespace] = allowed(installed.cluster, f"{namespace}/nobody", namespace)
    own = allowed(installed.cluster, account, namespace) - installed.anyone[namespace]
    assert own == granted(expected, account, namespace)
    known = {named(group, name): (group, name, namespaced) for group, name, namespaced in resources(installed.cluster)}
    assert all(may(installed.cluster, account, namespace, known[resource], verb) for resource, verb in own)


@pytest.mark.parametrize(
    ("verb", "name", "answer"),
    [("update", "tuneyard-hub", True), ("get", "tuneyard-hub", True), ("update", "other", False), ("get", "", False)],
)
def test_the_hub_may_hold_its_own_lease_only(installed: Installed, verb: str, name: str, answer: bool) -> None:
    asked = {"group": "coordination.k8s.io", "resource": "leases", "verb": verb, "name": name, "namespace": SYSTEM}
    review = {"spec": {"user": f"system:serviceaccount:{SYSTEM}:tuneyard-hub", "resourceAttributes": asked}}

    status = installed.cluster.api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]
    assert status["allowed"] is answer


@pytest.mark.parametrize(("role", "verbs"), [("edit", {"create", "delete", "get"}), ("view", {"get"})])
def test_people_submit_jobs_by_the_roles_they_have(installed: Installed, role: str, verbs: set[str]) -> None:
    cluster = installed.cluster
    cluster.kubectl("create", "rolebinding", f"ann-{role}", f"--clusterrole={role}", f"--user=ann-{role}", "-n", "default")

    def may(verb: str) -> bool:
        asked = {"group": "tuneyard.dev", "resource": "jobspecs", "verb": verb, "namespace": "default"}
        review = {"spec": {"user": f"ann-{role}", "resourceAttributes": asked}}
        return bool(cluster.api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]["allowed"])

    wait_for("the aggregated role", lambda: may("get"))
    assert {verb for verb in ("create", "delete", "get") if may(verb)} == verbs


# --- joining


def test_the_notes_join_a_member_as_they_are_printed(installed: Installed, tmp_path: Path) -> None:
    cluster = installed.cluster
    script = re.search(r"^# 1\..*?^EOF$", installed.notes[MEMBER], re.MULTILINE | re.DOTALL)
    assert script
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "PATH": f"{Path(binary('kubectl')).parent}:{os.environ['PATH']}"}

    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script[0]], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir()), "credentials were left behind"
    goal = cluster.api.get("/apis/tuneyard.dev/v1alpha1/clusters/dca-a100")["spec"]
    reference = goal["endpoint"]["kubeconfigSecret"]
    secret = cluster.api.get(f"/api/v1/namespaces/{SYSTEM}/secrets/{reference['name']}")
    member = tmp_path / "kubeconfig"
    member.write_bytes(base64.b64decode(secret["data"][reference["key"]]))

    def as_hub(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([binary("kubectl"), "--kubeconfig", str(member), *words], capture_output=True, text=True, check=False)

    assert f"system:serviceaccount:{JOBS}:tuneyard-hub" in as_hub("auth", "whoami").stdout
    assert "gpu-0" in as_hub("get", "nodes").stdout
    assert as_hub("get", "rayjobs", "-n", goal["namespace"]).returncode == 0
    assert "forbidden" in as_hub("get", "secrets", "-n", SYSTEM).stderr


def test_the_notes_know_whether_kuberay_is_there(installed: Installed) -> None:
    assert "KubeRay is missing" not in installed.notes[MEMBER]
    assert f"{SYSTEM}; jobs that name no output write below {HUB_VALUES['output']}" in installed.notes[HUB]


# --- what the API server makes of it


def test_pods_of_the_hub_are_admitted_under_the_restricted_standard(installed: Installed) -> None:
    cluster = installed.cluster
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM, "labels": labels}})
    cluster.kubectl("rollout", "restart", "deployment/tuneyard-hub", "-n", SYSTEM)

    def pods() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = cluster.api.get(f"/api/v1/namespaces/{SYSTEM}/pods")["items"]
        return [pod for pod in found if "kubectl.kubernetes.io/restartedAt" in pod["metadata"].get("annotations", {})]

    assert wait_for("a pod of the hub", pods)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_api_server_accepts_every_object(installed: Installed, variant: str) -> None:
    """Strict validation, and admission under the namespace's standard; kinds of Prometheus Operator are not here."""
    cluster = installed.cluster
    for name in ("maps", "rides", "jobs"):
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    objects = [each for each in render_variant(variant) if each["apiVersion"] != "monitoring.coreos.com/v1"]

    cluster.kubectl(
        *("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-"),
        stdin=yaml.safe_dump_all(objects),
    )


# --- upgrade and uninstall, last: they take the releases away


def test_an_upgrade_renews_the_kinds(installed: Installed, tmp_path: Path) -> None:
    cluster = installed.cluster
    older = tmp_path / HUB
    shutil.copytree(CHARTS / HUB, older)
    file = older / "files/crds/jobspecs.yaml"
    crd = yaml.safe_load(file.read_text())
    columns = crd["spec"]["versions"][0]["additionalPrinterColumns"]
    crd["spec"]["versions"][0]["additionalPrinterColumns"] = [column for column in columns if column["name"] != "MFU"]
    file.write_text(yaml.safe_dump(crd))

    def header() -> str:
        return cluster.kubectl("get", "crd", "jobspecs.tuneyard.dev", "-o", "jsonpath={.spec.versions[0].additionalPrinterColumns[*].name}")

    helm(cluster, "upgrade", HUB, str(older), values=HUB_VALUES)
    assert "MFU" not in header()
    helm(cluster, "upgrade", HUB, str(CHARTS / HUB), values=HUB_VALUES)
    assert "MFU" in header()


def test_an_uninstall_leaves_jobs_and_their_namespace_and_an_install_takes_them_up(installed: Installed) -> None:
    cluster = installed.cluster
    cluster.apply(JOBSPEC)

    for chart in (HUB, MEMBER):
        helm(cluster, "uninstall", chart)

    assert cluster.api.get("/apis/tuneyard.dev/v1alpha1/namespaces/default/jobspecs/kept")
    assert cluster.api.get(f"/api/v1/namespaces/{JOBS}")["status"]["phase"] == "Active"
    assert cluster.api.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/attemptreports.tuneyard.dev")
    roles = cluster.api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles")["items"]
    assert not [role["metadata"]["name"] for role in roles if role["metadata"]["name"].startswith("tuneyard")]
    helm(cluster, "install", HUB, str(CHARTS / HUB), values=HUB_VALUES)
    helm(cluster, "install", MEMBER, str(CHARTS / MEMBER))
    assert cluster.api.get(f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/tuneyard-hub")


def test_a_second_hub_is_refused(installed: Installed) -> None:
    with pytest.raises(AssertionError, match="tuneyard-hub"):
        helm(installed.cluster, "install", "another", str(CHARTS / HUB), "--namespace=other", "--create-namespace", values=HUB_VALUES)
