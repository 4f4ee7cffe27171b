"""Pods of the charts pass the restricted Pod Security Standard, and are told what the operator's command line takes."""

from __future__ import annotations

import pytest
from tests.unit.charts.rendering import HUB, MEMBER, VARIANTS, Object, grants, of_kind, pods, render, render_variant

from tuneyard.catalog import gpu
from tuneyard_operators.hub.settings import Settings
from tuneyard_operators.rendering import ISOLATED

pytestmark = pytest.mark.usefixtures("helm_here")
ALLOWED_VOLUMES = {"configMap", "downwardAPI", "emptyDir", "persistentVolumeClaim", "projected", "secret"}


def deployment(objects: list[Object]) -> Object:
    (only,) = of_kind(objects, "Deployment")
    return only


def container(objects: list[Object]) -> Object:
    (only,) = deployment(objects)["spec"]["template"]["spec"]["containers"]
    return only  # type: ignore[no-any-return]


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_container_is_restricted(variant: str) -> None:
    for name, pod in pods(render_variant(variant)):
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod), name
        security = pod["securityContext"]
        assert (security["runAsNonRoot"], security["seccompProfile"]["type"]) == (True, "RuntimeDefault"), name
        assert security["runAsUser"] > 0
        assert all(set(volume) - {"name"} <= ALLOWED_VOLUMES for volume in pod["volumes"]), name
        for each in [*pod["containers"], *pod.get("initContainers", [])]:
            assert each["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert all("hostPort" not in port for port in each["ports"])
            assert "memory" in each["resources"]["limits"]
            assert {"livenessProbe", "readinessProbe"} <= set(each)
            if name.startswith("tuneyard-hub") or name == "tuneyard-postgresql":  # which start slowly, or recover
                startup = each["startupProbe"]
                assert startup["periodSeconds"] * startup["failureThreshold"] >= 300, name
            assert ":" in each["image"]
            assert not each["image"].endswith(":latest")


@pytest.mark.parametrize("variant", VARIANTS)
def test_objects_are_named_labelled_and_placed(variant: str) -> None:
    objects = render_variant(variant)

    seen = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in objects]
    assert len(set(seen)) == len(seen)
    cluster_wide = {"APIService", "Namespace", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}
    for each in objects:
        assert each["metadata"]["labels"]["app.kubernetes.io/part-of"] == "tuneyard", each["metadata"]["name"]
        assert (each["kind"] in cluster_wide) == ("namespace" not in each["metadata"]), each["metadata"]["name"]


@pytest.mark.parametrize("variant", [name for name in VARIANTS if VARIANTS[name][0] == HUB])
def test_selectors_choose_the_pods_they_mean(variant: str) -> None:
    objects = render_variant(variant)
    made = {
        each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"] for each in of_kind(objects, "Deployment", "StatefulSet")
    }

    for each in of_kind(objects, "Service", "PodDisruptionBudget", "NetworkPolicy"):
        selector = each["spec"].get("selector") or each["spec"].get("podSelector")
        wanted = selector.get("matchLabels", {} if "matchExpressions" in selector else selector)
        if wanted:
            chosen = [name for name, labels in made.items() if wanted.items() <= labels.items()]
            assert chosen == [each["metadata"]["name"].removesuffix("-metrics").removesuffix("-logs")]


def test_the_operator_is_told_what_it_needs() -> None:
    hub = container(render(HUB))

    assert hub["command"] == ["python", "-m", "tuneyard_operators", "hub"]
    assert hub["args"] == [
        "--namespace=tuneyard-system",
        "--output=s3://models/jobs",
        "--image=registry.example.com/tuneyard:0.1.0-gpu",
        f"--stop-grace={Settings().stop_grace_s:g}",
        "--metrics-port=9090",
        "--logs-port=9443",
        f"--qps={Settings().qps:g}",
        f"--member-qps={Settings().member_qps:g}",
        "--log-format=json",
        *(f"--webhook-host={host}" for host in Settings().webhook_hosts),
    ]
    assert (hub["livenessProbe"]["httpGet"]["path"], hub["readinessProbe"]["httpGet"]["path"]) == ("/healthz", "/readyz")


def test_what_is_set_arrives() -> None:
    objects = render_variant("hub-placed")
    pod = deployment(objects)["spec"]["template"]["spec"]
    hub = container(objects)

    assert hub["image"] == "registry.example.com/tuneyard-hub@sha256:" + "0" * 64
    assert "--image=registry.example.com/tuneyard:0.1-gpu" in hub["args"]
    assert hub["args"][-1] == "--debug"
    assert "--name-node=namenode.example.com:9870" in hub["args"]
    assert {"name": "ca", "mountPath": "/etc/ca"} in hub["volumeMounts"]
    assert (pod["priorityClassName"], pod["nodeSelector"], pod["tolerations"][0]["key"]) == (
        "system-cluster-critical",
        {"pool": "system"},
        "system",
    )
    assert pod["hostAliases"][0]["hostnames"] == ["store"]
    assert deployment(objects)["spec"]["template"]["metadata"]["labels"]["team"] == "platform"


@pytest.mark.parametrize(
    ("variant", "sources"),
    [("hub", set()), ("hub-with-own-database", {("history", "url")}), ("hub-with-history", {("tuneyard-postgresql", "password")})],
)
def test_the_history_url_is_never_written_out(variant: str, sources: set[tuple[str, str]]) -> None:
    environment = container(render_variant(variant))["env"]

    references = [each["valueFrom"]["secretKeyRef"] for each in environment if "valueFrom" in each]
    assert {(each["name"], each["key"]) for each in references} == sources
    assert ("TUNEYARD_HISTORY_URL" in {each["name"] for each in environment}) == bool(sources)


def test_nothing_of_a_member_runs() -> None:
    assert list(pods(render(MEMBER))) == []


@pytest.mark.parametrize(("variant", "level"), [("member", "restricted"), ("member-limited", "privileged")])
def test_the_namespace_of_jobs_enforces_a_standard(variant: str, level: str) -> None:
    (namespace,) = of_kind(render_variant(variant), "Namespace")

    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == level
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/warn"] == "restricted"


@pytest.mark.parametrize("chart", [HUB, MEMBER])
def test_an_uninstall_takes_neither_kinds_nor_jobs_along(chart: str) -> None:
    for each in of_kind(render(chart), "CustomResourceDefinition", "Namespace"):
        assert each["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_only_kuberay_reaches_an_attempt_from_outside() -> None:
    """What reaches an attempt from inside is in the attempt's own policy; older hubs make none, and label no pods."""
    jobs, of_older_hubs = of_kind(render(MEMBER), "NetworkPolicy")

    assert jobs["spec"]["podSelector"] == {}
    (kuberay,) = jobs["spec"]["ingress"]
    assert kuberay["from"][0]["podSelector"]["matchLabels"] == {"app.kubernetes.io/component": "kuberay-operator"}
    assert of_older_hubs["spec"]["podSelector"] == {"matchExpressions": [{"key": ISOLATED, "operator": "DoesNotExist"}]}
    assert of_older_hubs["spec"]["ingress"] == [{"from": [{"podSelector": {}}]}]
    assert of_older_hubs["spec"]["policyTypes"] == ["Ingress"]


def test_a_member_without_policies_lets_the_hub_make_none() -> None:
    closed = render_variant("member-closed")

    assert not of_kind(closed, "NetworkPolicy")
    assert not [grant for grant in grants(closed) if grant.resource.startswith("networkpolicies")]


def test_jobs_do_not_reach_what_hands_out_the_identity_of_a_node() -> None:
    jobs, _ = of_kind(render(MEMBER), "NetworkPolicy")

    assert jobs["spec"]["policyTypes"] == ["Ingress", "Egress"]
    pods_of_any, *blocks = jobs["spec"]["egress"][0]["to"]
    assert pods_of_any == {"namespaceSelector": {}}
    assert [each["ipBlock"] for each in blocks] == [
        {"cidr": "0.0.0.0/0", "except": ["169.254.169.254/32"]},
        {"cidr": "::/0", "except": ["fd00:ec2::254/128"]},
    ]
    open_to_all, _ = of_kind(render(MEMBER, {"networkPolicy": {"closedAddresses": []}}), "NetworkPolicy")
    assert open_to_all["spec"]["policyTypes"] == ["Ingress"]
    assert "egress" not in open_to_all["spec"]


def test_kinds_of_gpu_reach_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {"name": "rtx-9090-48gb", "memoryGb": 48, "memoryBandwidthGbPerS": 2000, "peakTflops": {"fp32": 120, "bf16": 240.5}}

    env = {each["name"]: each.get("value") for each in container(render(HUB, {"gpus": [entry]}))["env"]}

    monkeypatch.setenv("TUNEYARD_GPUS", env["TUNEYARD_GPUS"])
    assert gpu("rtx-9090-48gb").peak_flops["bf16"] == 240.5e12
    assert "TUNEYARD_GPUS" not in {each["name"] for each in container(render_variant("hub"))["env"]}
