"""A RayJob per feature, as it is sent: `tests/golden/rayjobs/`, which TUNEYARD_WRITE_GOLDEN=1 writes anew."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from shlex import quote
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.builders.attempts import UID, attempt, job, process, train
from tests.builders.rankers import rank_task

from tuneyard.api import BadInput, Cluster, PlacementStatus
from tuneyard.runtime.attempt.assignment import job_of
from tuneyard.schedules import LastGood
from tuneyard_operators.rendering import UID as UID_LABEL
from tuneyard_operators.rendering import Defaults, attempt_name, door, labels_of, network_policy, rayjob, secret, service, wants_autoscaler
from tuneyard_operators.rendering.container import from_field, literal, security_context
from tuneyard_operators.rendering.merge import merged
from tuneyard_operators.rendering.names import service_name
from tuneyard_operators.rendering.secrets import SecretKey

GOLDEN = Path(__file__).parents[2] / "golden" / "rayjobs"
H100 = {"name": "h100-80gb", "nodes": 4, "gpusPerNode": 8}
CPU = {"name": "cpu", "nodes": 2, "gpusPerNode": 8}
ON_GPUS = PlacementStatus(cluster="east", sku="h100-80gb", workers=16, gpus=16, pods=2, nodes={"n1": 8, "n2": 8})
ON_CPU = PlacementStatus(cluster="east", sku="cpu", workers=2, gpus=2, pods=2, nodes={"n1": 2})


def cluster(**spec: Any) -> Cluster:
    return Cluster.model_validate({"metadata": {"name": "east"}, "spec": {"skus": [H100, CPU], **spec}})


def render(
    *,
    task: dict[str, Any] | None = None,
    on: PlacementStatus = ON_GPUS,
    where: Cluster | None = None,
    autoscaled: bool = False,
    **spec: Any,
) -> dict[str, Any]:
    one = task or train("train", 16)
    own = attempt(3, one["name"], placement=on, name=attempt_name("bot", UID, one["name"], 3))
    defaults = Defaults(image="registry/tuneyard:1")
    return rayjob(job(tasks=[one], **spec), UID, own, where or cluster(), "s3://models/bot", defaults, autoscaled=autoscaled)


SECRET_ENV = [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}}, {"name": "MODE", "value": "fast"}]
POD_TEMPLATE = {
    "metadata": {"labels": {"cost-centre": "42"}},
    "spec": {
        "runtimeClassName": "nvidia",
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "volumes": [{"name": "models", "nfs": {"server": "nas", "path": "/models"}}],
        "containers": [{"env": [{"name": "HOME", "value": "/home/ray"}], "volumeMounts": [{"name": "models", "mountPath": "/models"}]}],
    },
}
SERVICE_DATA = {"source": "s3://corpus/texts", "service": {"minWorkers": 2, "maxWorkers": 6, "cpus": 1.5, "memoryGb": 3}}
FEATURES: dict[str, dict[str, Any]] = {
    "gpus": {},
    "cpu": {"on": ON_CPU, "task": train("train", 2)},
    "data-service": {
        "task": train("train", 16) | {"train": {**train("train", 16)["train"], "data": SERVICE_DATA}},
        "where": cluster(head={"nodeSelector": {"pool": "cpu"}}),
    },
    "data-pods-come-and-go": {
        "task": train("train", 16) | {"train": {**train("train", 16)["train"], "data": SERVICE_DATA}},
        "where": cluster(podTemplate=POD_TEMPLATE),
        "image": "registry/mine:2",
        "autoscaled": True,
    },
    "process": {"on": PlacementStatus(cluster="east", sku="cpu", workers=1, gpus=0, pods=0, nodes={}), "task": process("corpus")},
    "sku": {
        "where": cluster(
            skus=[
                {
                    **H100,
                    "nodeSelector": {"gpu": "h100"},
                    "gpuResource": "nvidia.com/h100",
                    "cpuPerGpu": 12,
                    "memoryPerGpu": "200Gi",
                    "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
                }
            ],
            head={"cpu": 2, "memory": "8Gi", "nodeSelector": {"pool": "cpu"}},
        )
    },
    "taints": {"where": cluster(taints=[{"key": "team", "value": "ml"}])},
    "shared-memory": {"where": cluster(sharedMemory="64Gi")},
    "scratch": {"storage": {"scratch": "3Ti"}},
    "scratch-storage-class": {"storage": {"scratch": "3Ti"}, "where": cluster(scratchStorageClass="local-nvme")},
    "network": {"where": cluster(network={"interface": "bond0", "bandwidthGbPerS": 25, "nccl": {"NCCL_IB_HCA": "mlx5"}})},
    "shared-shards": {"where": cluster(sharedShards={"uri": "s3://tier/shards", "size": "2Ti"})},
    "setup": {"setup": ["hf auth login --token $HF_TOKEN", "echo 'it''s done'"], "env": SECRET_ENV},
    "env": {"env": SECRET_ENV},
    "cluster-env": {
        "where": cluster(env=[{"name": "AWS_SECRET_ACCESS_KEY", "valueFrom": {"secretKeyRef": {"name": "storage", "key": "secret"}}}])
    },
    "image": {"image": "registry/mine:2"},
    "image-pull-secrets": {"where": cluster(imagePullSecrets=["registry"])},
    "deadline": {"deadline": "2h"},
    "kueue": {"where": cluster(localQueue="gpus")},
    "pod-template": {"where": cluster(podTemplate=POD_TEMPLATE)},
    "serve": {
        "on": PlacementStatus(cluster="east", sku="h100-80gb", workers=1, gpus=2, pods=1, nodes={"n1": 2}),
        "task": {"name": "serve", "serve": {"models": [{"name": "s3://models/bot"}], "tensorParallel": 2}},
        "env": [{"name": "TUNEYARD_API_KEY", "valueFrom": {"secretKeyRef": {"name": "bot", "key": "key"}}}],
    },
}


@pytest.mark.parametrize("feature", FEATURES)
def test_the_rayjob_of_a_feature(feature: str) -> None:
    found = render(**FEATURES[feature])
    file = GOLDEN / f"{feature}.yaml"
    if os.environ.get("TUNEYARD_WRITE_GOLDEN"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump(found, sort_keys=False, width=140))
    assert found == yaml.safe_load(file.read_text())


def test_the_service_of_a_server_has_one_name_for_all_attempts_and_goes_with_its_secret() -> None:
    first, second = (labels_of("1-bot", "maps", UID, "serve", number) for number in (1, 2))
    own = service(first, {"metadata": {"name": "bot-1", "uid": "77"}})

    assert service_name(first) == service_name(second) == "serve-1-bot-serve-0123abcd"
    assert own["metadata"]["name"] == service_name(first)
    assert own["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Secret", "name": "bot-1", "uid": "77"}]
    assert own["spec"]["selector"] == {UID_LABEL: UID, "tuneyard.dev/attempt": "1", "ray.io/group": "gang"}
    assert network_policy("x", first)["spec"]["ingress"] == network_policy("x", first, serves=True)["spec"]["ingress"][:1]
    assert network_policy("x", first, serves=True)["spec"]["ingress"][1:] == [{"ports": [{"protocol": "TCP", "port": 8000}]}]


def test_every_golden_file_has_its_feature() -> None:
    assert {file.stem for file in GOLDEN.glob("*.yaml")} == set(FEATURES)


def test_a_place_for_shared_shards_is_checked_and_no_job_changes_it() -> None:
    for uri, said in {
        "tier": "not an absolute path",
        "ftp://host/tier": "not a known kind of storage",
        "s3://a:b@c": "credentials",
    }.items():
        with pytest.raises(ValueError, match=said):
            cluster(sharedShards={"uri": uri})
    own = [{"name": name, "value": "other"} for name in ("TUNEYARD_SHARED_SHARDS", "TUNEYARD_SHARED_SHARDS_SIZE")]
    head = pods(render(where=cluster(sharedShards={"uri": "/mnt/tier"}), env=own))[0]["spec"]["containers"][0]
    values = {variable["name"]: variable.get("value") for variable in head["env"]}  # the last one wins
    assert (values["TUNEYARD_SHARED_SHARDS"], values["TUNEYARD_SHARED_SHARDS_SIZE"]) == ("/mnt/tier", "")


def pods(found: dict[str, Any]) -> list[dict[str, Any]]:
    spec = found["spec"]["rayClusterSpec"]
    return [spec["headGroupSpec"]["template"], *(group["template"] for group in spec["workerGroupSpecs"])]


@pytest.mark.parametrize("feature", FEATURES)
def test_every_pod_passes_the_restricted_standard(feature: str) -> None:
    for template in pods(render(**FEATURES[feature])):
        assert template["spec"]["securityContext"]["runAsNonRoot"] is True
        assert not any("hostPath" in volume for volume in template["spec"]["volumes"])
        for container in template["spec"]["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context["seccompProfile"] == {"type": "RuntimeDefault"}


def test_the_autoscaler_is_restricted_too_and_runs_no_image_of_a_job() -> None:
    found = render(**FEATURES["data-pods-come-and-go"])["spec"]["rayClusterSpec"]
    options = found["autoscalerOptions"]
    assert options["image"] == "registry/tuneyard:1"
    assert options["securityContext"] == security_context()
    gang, data = found["workerGroupSpecs"]
    assert [gang[each] for each in ("replicas", "minReplicas", "maxReplicas")] == [2, 2, 2]
    assert [data[each] for each in ("replicas", "minReplicas", "maxReplicas")] == [2, 2, 6]


def test_no_container_with_a_jobs_code_has_the_autoscalers_account() -> None:
    cluster_spec = render(**FEATURES["data-pods-come-and-go"])["spec"]["rayClusterSpec"]
    head = cluster_spec["headGroupSpec"]["template"]["spec"]
    assert (head["serviceAccountName"], head["automountServiceAccountToken"]) == ("tuneyard-autoscaler", False)
    volumes = {volume["name"]: volume for volume in head["volumes"]}
    (own,) = head["containers"]
    mounted = {mount["mountPath"]: volumes[mount["name"]] for mount in own["volumeMounts"]}
    assert mounted["/var/run/secrets/kubernetes.io/serviceaccount"] == {
        "name": "job-account",
        "secret": {"secretName": "tuneyard-job-token"},
    }
    assert not any("projected" in volume for volume in mounted.values())
    (account,) = [each for each in cluster_spec["autoscalerOptions"]["volumeMounts"] if "serviceaccount" in each["mountPath"]]
    assert "serviceAccountToken" in volumes[account["name"]]["projected"]["sources"][0]


FIXED = {"minWorkers": 2, "maxWorkers": 2}


@pytest.mark.parametrize(
    ("service", "where", "image", "wanted"),
    [
        ({}, {}, "i", True),
        (FIXED, {}, "i", False),
        (None, {}, "i", False),
        ({}, {"localQueue": "gpus"}, "i", False),  # Kueue admits a number of pods
        ({}, {}, "", False),  # the job's own image would be the autoscaler's
    ],
)
def test_data_pods_come_and_go_where_they_can(service: dict[str, Any] | None, where: dict[str, Any], image: str, wanted: bool) -> None:
    data = {"source": "s3://corpus/texts"} | ({} if service is None else {"service": service})
    one = job(tasks=[train("train", 16) | {"train": {**train("train", 16)["train"], "data": data}}])
    assert wants_autoscaler(one, "train", cluster(**where), image) is wanted


def test_a_rank_task_with_a_service_has_data_pods() -> None:
    rank = rank_task("s3://ads/days", service={"minWorkers": 2, "maxWorkers": 2}).model_dump(mode="json", by_alias=True, exclude_none=True)
    found = render(task={"name": "train", "rank": rank, "resources": {"workers": 16}})
    gang, data = found["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    assert [data[each] for each in ("replicas", "minReplicas", "maxReplicas")] == [2, 2, 2]
    assert gang["groupName"] != data["groupName"]


@pytest.mark.parametrize(("at_once", "memory"), [(1, 2), (2, 3), (4, 3)])
def test_the_head_of_a_search_has_memory_for_each_of_its_gangs(at_once: int, memory: int) -> None:
    """Sixteen GPUs are at most two gangs of eight, whatever the search has asked for."""
    search = {"name": "search", "tune": {"task": "train", "budget": {"trials": 20, "atOnce": at_once}}}
    searching = job(tasks=[train("train", 8), search])
    own = attempt(3, "search", placement=ON_GPUS, name=attempt_name("bot", UID, "search", 3))
    head = pods(rayjob(searching, UID, own, cluster(), "s3://models/bot", Defaults(image="registry/tuneyard:1")))[0]
    (container,) = head["spec"]["containers"]
    assert container["resources"]["limits"]["memory"] == container["resources"]["requests"]["memory"] == str(memory * 1024**3)


def test_no_secret_stands_in_a_rayjob() -> None:
    found = render(env=SECRET_ENV)
    names = {source["valueFrom"]["secretKeyRef"]["name"] for source in _env(found) if "secretKeyRef" in source.get("valueFrom", {})}
    assert names == {attempt_name("bot", UID, "train", 3)}


def test_a_job_cannot_change_what_the_platform_says() -> None:
    found = render(env=[{"name": "TUNEYARD_OUTPUT", "value": "s3://elsewhere"}])
    assert [each["value"] for each in _env(found) if each["name"] == "TUNEYARD_OUTPUT"] == ["s3://models/bot"]


@pytest.mark.parametrize("feature", ["gpus", "cpu", "process", "data-service"])
def test_containers_that_ask_for_no_gpu_see_none_whatever_the_job_says(feature: str) -> None:
    found = render(**FEATURES[feature], env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}])
    for pod in pods(found):
        (container,) = pod["spec"]["containers"]
        visible = [each["value"] for each in container["env"] if each["name"] == "NVIDIA_VISIBLE_DEVICES"]
        asks = "nvidia.com/gpu" in container["resources"].get("limits", {})
        assert visible == (["all"] if asks else ["void"])  # by resources, the device plugin decides


EVERYWHERE = ["$(HF_TOKEN)", "$$(HF_TOKEN)", "$$$(HF_TOKEN)", "$", "$$", "a $( b", "$HF_TOKEN ${HF_TOKEN}", "$(date)", "$((1 + 1))"]


@pytest.mark.parametrize("text", EVERYWHERE)
def test_what_a_job_says_reaches_its_pods_to_the_letter(text: str) -> None:
    """Kubernetes replaces $(HF_TOKEN) by the token: it would stand in argv, and in what the attempt writes to storage."""
    task = {"name": "corpus", "process": {"command": ["bash", "-c", text]}}
    found = render(task=task, setup=[f"echo {text}"], env=[*SECRET_ENV, {"name": "OWN", "value": text}])
    for template in pods(found):
        container = template["spec"]["containers"][0]
        variables: dict[str, str] = {"HF_TOKEN": "the-secret"}
        for each in container["env"]:
            variables[each["name"]] = expanded(each["value"], variables) if "value" in each else variables.get(each["name"], "")
        assert variables["OWN"] == text
        assert f"setup {quote(f'echo {text}')}\n" in expanded(container["command"][2], variables)
    driver = {each["name"]: each.get("value", "") for each in _env(found)}
    job_of_driver = json.loads(expanded(driver["TUNEYARD_JOB"], {"HF_TOKEN": "the-secret"}))
    assert job_of_driver["spec"]["tasks"][0]["process"]["command"] == ["bash", "-c", text]


def test_the_job_of_an_attempt_names_the_run_whose_rows_it_compares() -> None:
    last = LastGood("nightly-29927580", "s3://evals/nightly-29927580")
    of_a_schedule = job(tasks=[train("train", 16)])
    of_a_schedule.metadata.annotations.update({**last.annotations, "kubectl.kubernetes.io/last-applied-configuration": "{}"})
    own = attempt(3, "train", placement=ON_GPUS, name=attempt_name("bot", UID, "train", 3))
    found = rayjob(of_a_schedule, UID, own, cluster(), "s3://models/bot", Defaults(image="registry/tuneyard:1"))
    metadata = job_of({each["name"]: each.get("value", "") for each in _env(found)}).metadata
    assert LastGood.of(metadata.annotations) == last
    assert len(metadata.annotations) == 2, "no other annotations"


@given(text=st.text("$()AB{x", max_size=12))
def test_every_text_of_a_container_survives_the_kubelet(text: str) -> None:
    made = literal({"command": [text], "args": [text], "env": [{"name": "X", "value": text}, from_field("Y", "spec.nodeName")]})
    passed = [*made["command"], *made["args"], made["env"][0]["value"]]
    assert [expanded(each, {"A": "1", "AB": "2", "": "3"}) for each in passed] == [text] * 3


def expanded(text: str, variables: dict[str, str]) -> str:
    """As kubelets expand a container's words (k8s.io/kubernetes/third_party/forked/golang/expansion)."""
    return re.sub(r"\$(?:\$|\(([^)]*)\))", lambda found: "$" if found[0] == "$$" else variables.get(found[1], found[0]), text)


def test_a_clusters_pod_template_is_read_as_kubernetes_reads_it() -> None:
    env = [{"name": "CACHE", "value": "/models/$(TUNEYARD_NODE)"}]
    found = render(where=cluster(podTemplate={"spec": {"containers": [{"env": env}]}}))
    assert [each["value"] for each in _env(found) if each["name"] == "CACHE"] == ["/models/$(TUNEYARD_NODE)"]


@pytest.mark.parametrize("name", ["RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_ENABLE_K8S_TOKEN_AUTH"])
def test_a_job_cannot_open_its_ray(name: str) -> None:
    assert render()["spec"]["rayClusterSpec"]["authOptions"] == {"mode": "token"}
    with pytest.raises(ValidationError, match="an attempt's Ray has its own token"):
        render(env=[{"name": name, "value": "disabled"}])
    with pytest.raises(ValidationError, match="an attempt's Ray has its own token"):
        cluster(env=[{"name": name, "value": "disabled"}])


def test_a_kuberay_that_makes_no_token_starts_no_open_ray() -> None:
    """It drops `authOptions` as a field that it does not know; Ray itself then looks for a token in vain."""
    for template in pods(render()):
        assert {"name": "RAY_AUTH_MODE", "value": "token"} in template["spec"]["containers"][0]["env"]


def test_the_token_of_an_attempts_ray_is_a_secret_to_its_logs() -> None:
    (names,) = [each["value"] for each in _env(render(env=SECRET_ENV)) if each["name"] == "TUNEYARD_SECRETS"]
    assert names == "HF_TOKEN,RAY_AUTH_TOKEN"


def test_pods_of_an_attempt_are_reached_by_each_other_alone() -> None:
    labels = labels_of("bot", "maps", UID, "train", 3)
    policy = network_policy("bot-train-3", labels)
    own = {"podSelector": {"matchLabels": {"tuneyard.dev/job-uid": UID, "tuneyard.dev/attempt": "3"}}}
    assert policy["spec"] == {**own, "policyTypes": ["Ingress"], "ingress": [{"from": [own]}]}
    for template in pods(render()):
        assert own["podSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        assert "tuneyard.dev/isolated" not in template["metadata"]["labels"]
    one = attempt(3, "train", placement=ON_GPUS)
    made = rayjob(job(tasks=[train("train", 16)]), UID, one, cluster(), "s3://o", Defaults(image="i"), isolated=True)
    assert {template["metadata"]["labels"]["tuneyard.dev/isolated"] for template in pods(made)} == {"true"}


def _env(found: dict[str, Any]) -> list[dict[str, Any]]:
    return list(pods(found)[0]["spec"]["containers"][0]["env"])


def test_secrets_of_several_names_meet_in_one() -> None:
    made = secret("bot-1", {"a": "b"}, {SecretKey("hf", "token"): b"x", SecretKey("s3", "token"): b"y"})
    assert made["data"] == {"hf_token": "eA==", "s3_token": "eQ=="}


def test_a_job_without_any_image_is_refused() -> None:
    own = attempt(placement=ON_CPU)
    with pytest.raises(BadInput, match="names no image"):
        rayjob(job(), UID, own, cluster(), "s3://o", Defaults())


def test_names_fit_kuberay_and_differ_where_they_must() -> None:
    longest = attempt_name("a" * 63, UID, "b" * 63, 99999)
    assert len(longest) <= 47
    assert attempt_name("bot", UID, "train", 1) != attempt_name("bot", UID.replace("0", "1"), "train", 1)


def test_merging_keeps_both_sides_and_lets_the_template_win() -> None:
    assert merged({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}}) == {"a": {"x": 1, "y": 3}}
    assert merged({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "A", "value": "2"}, {"name": "B", "value": "3"}]}) == {
        "env": [{"name": "A", "value": "2"}, {"name": "B", "value": "3"}]
    }
    two = [{"key": "a"}, {"key": "b"}]
    assert merged({"tolerations": two[:1]}, {"tolerations": two}) == {"tolerations": two}


def test_kuberay_is_told_the_version_of_ray_that_the_images_hold() -> None:
    lock = (Path(__file__).parents[3] / "requirements" / "cpu.txt").read_text()
    locked = next(line for line in lock.splitlines() if line.startswith("ray"))
    assert locked.split("==")[1].split()[0] == render()["spec"]["rayClusterSpec"]["rayVersion"]


def test_the_door_of_a_sleeping_server_gets_no_gpu_and_of_all_secrets_the_key_for_requests() -> None:
    def reference(name: str) -> dict[str, Any]:
        return {"name": name, "valueFrom": {"secretKeyRef": {"name": "bot", "key": name.lower()}}}

    task = {"name": "one", "serve": {"models": [{"name": "s3://models/bot"}], "idle": "15m"}}
    owner = {"metadata": {"name": "bot-one-3", "uid": "0123"}}
    pod = door(render(task=task, on=ON_CPU, env=[reference("TUNEYARD_API_KEY"), reference("HF_TOKEN")]), owner)
    (container,) = pod["spec"]["containers"]
    env = {variable["name"]: variable for variable in container["env"]}
    assert [name for name, variable in env.items() if "secretKeyRef" in variable.get("valueFrom", {})] == ["TUNEYARD_API_KEY"]
    assert env["NVIDIA_VISIBLE_DEVICES"]["value"] == "void"
    assert "TUNEYARD_JOB" not in env
    assert container["resources"]["limits"] == {"memory": "192Mi"}
    assert pod["metadata"]["ownerReferences"][0]["uid"] == "0123"
    own = pod["metadata"]["labels"]
    assert service(own, owner, to_door=True)["spec"]["selector"].items() <= own.items()
    assert not service(own, owner)["spec"]["selector"].items() <= own.items()
