"""Values are checked before anything is rendered: unknown names, wrong types, and combinations that cannot work."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from scripts.charts import default_values, leaves, values_schema
from tests.testcluster.binaries import binary
from tests.unit.charts.rendering import CHARTS, HUB, HUB_VALUES, MEMBER, VARIANTS, helm, with_required

pytestmark = pytest.mark.usefixtures("helm_here")
both = pytest.mark.parametrize("chart", [HUB, MEMBER])


def nodes(schema: dict[str, Any], path: str) -> list[tuple[str, dict[str, Any]]]:
    found = [(path, schema)]
    for name, node in schema.get("properties", {}).items():
        found += nodes(node, f"{path}.{name}")
    if isinstance(schema.get("items"), dict):
        found += nodes(schema["items"], f"{path}[]")
    return found


@both
def test_the_schema_is_strict_and_explains_every_value(chart: str) -> None:
    for path, node in nodes(values_schema(chart), "values"):
        if path.endswith("selfMember"):
            continue  # the other chart's schema holds
        assert node.get("description") or path.endswith("[]"), path
        assert "properties" not in node or node["additionalProperties"] is False, path


@both
def test_every_value_has_a_default_and_every_default_a_schema(chart: str) -> None:
    not_set = {"global", "enabled"} | {"selfMember.enabled"}
    described = {path for path, _, _ in leaves(values_schema(chart), default_values(chart))} - not_set

    assert described == set(paths(default_values(chart), values_schema(chart))) - {"selfMember.enabled", "selfMember.hub"}


def paths(values: dict[str, Any], schema: dict[str, Any], before: str = "") -> list[str]:
    found = []
    for name, value in values.items():
        node = schema.get("properties", {}).get(name, {})
        inner = isinstance(value, dict) and ("properties" in node)
        found += paths(value, node, f"{before}{name}.") if inner else [f"{before}{name}"]
    return found


@pytest.mark.parametrize("variant", VARIANTS)
def test_lint_has_nothing_to_say(variant: str) -> None:
    chart, values = VARIANTS[variant]

    done = helm("lint", "--strict", str(CHARTS / chart), values=with_required(chart, values))

    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout
    assert "[ERROR]" not in done.stdout


@pytest.mark.parametrize(
    ("chart", "values", "words"),
    [
        (HUB, {"outptu": "s3://x"}, "additional properties 'outptu' not allowed"),
        (HUB, {"output": "models"}, "output"),
        (HUB, {"output": "s3://user:password@models"}, "output"),
        (HUB, {"replicas": 0}, "replicas"),
        (HUB, {"replicas": "two"}, "replicas"),
        (HUB, {"image": {"tag": "latest"}}, "image/tag"),
        (HUB, {"image": {"digest": "abc"}}, "image/digest"),
        (HUB, {"metrics": {"port": 80}}, "metrics/port"),
        (HUB, {"metrics": {"serviceMonitor": {"enable": True}}}, "additional properties 'enable' not allowed"),
        (HUB, {"postgresql": {"image": "postgres"}}, "postgresql/image"),
        (HUB, {"secretNamespaces": ["Maps"]}, "secretNamespaces/0"),
        (HUB, {"selfMember": {"enabled": True, "namespaces": {}}}, "additional properties 'namespaces' not allowed"),
        (MEMBER, {"namespace": {"podSecurity": "strict"}}, "namespace/podSecurity"),
        (MEMBER, {"hub": {"tokens": {}}}, "additional properties 'tokens' not allowed"),
        # What only a template can tell: the words say what to do.
        (HUB, {"output": ""}, "next: --set output=s3://BUCKET/PREFIX"),
        (HUB, {"image": {"repository": ""}}, "next: build docker/Dockerfile.operator, push it"),
        (HUB, {"jobs": {"image": ""}}, "next: build docker/Dockerfile.gpu (or Dockerfile.cpu), push it"),
        (HUB, {"console": {"enabled": True, "auth": "proxy"}}, "next: --set console.proxy.secretName=NAME"),
        (HUB, {"console": {"auth": "proxy", "proxy": {"groups": ["system:masters"]}}}, "console/proxy/groups/0"),
        (HUB, {"console": {"proxy": {"networks": ["10.0.12.0/24", "10.0.12.0/33"]}}}, "console/proxy/networks/1"),
        (HUB, {"console": {"proxy": {"networks": ["10.0.256.0/24"]}}}, "console/proxy/networks/0"),
        (HUB, {"console": {"proxy": {"networks": ["fd00::/129"]}}}, "console/proxy/networks/0"),
        (HUB, {"console": {"enabled": True, "auth": "proxy", "proxy": {"networks": ["10.0.12.7/24"]}}}, "next: write /32 for one host"),
        (HUB, {"console": {"enabled": True, "ingress": {"enabled": True}}}, "next: --set console.hosts="),
        (HUB, {"postgresql": {"enabled": True, "external": {"secretName": "history"}}}, "next: choose one"),
        (HUB, {"selfMember": {"enabled": True}, "serviceAccount": {"name": "hub"}}, "--set selfMember.hub.serviceAccount.name=hub"),
        (HUB, {"selfMember": {"enabled": True, "hub": {"serviceAccount": {"create": True}}}}, "next: leave it false"),
        (MEMBER, {"namespace": {"name": "tuneyard-system"}}, "next: `helm install -n tuneyard-system --create-namespace`"),
        (MEMBER, {"hub": {"serviceAccount": {"create": False}}}, "next: set hub.token.create=false"),
        (MEMBER, {"hub": {"serviceAccount": {"namespace": "other"}}}, "next: set one of them"),
        (MEMBER, {"resourceQuota": {"enabled": True}}, "next: --set resourceQuota.hard"),
        (MEMBER, {"limitRange": {"enabled": True}}, "next: give limits"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_cannot_work_is_refused(chart: str, values: dict[str, Any], words: str) -> None:
    done = helm("template", "tuneyard", str(CHARTS / chart), "--namespace=tuneyard-system", values=with_required(chart, values))

    assert done.returncode != 0
    assert words in done.stderr


def test_a_plain_install_asks_for_what_it_needs() -> None:
    done = helm("template", "tuneyard", str(CHARTS / HUB))

    assert "output is not set" in done.stderr
    assert set(HUB_VALUES) == {"output", "image", "jobs"}


def test_a_package_of_the_hub_holds_the_member_too(tmp_path: Path) -> None:
    packed = subprocess.run(
        [binary("helm"), "package", str(CHARTS / HUB), "-d", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert packed.returncode == 0, packed.stderr
    (archive,) = tmp_path.iterdir()

    done = helm("template", "tuneyard", str(archive), "--namespace=tuneyard-system", values={**HUB_VALUES, "selfMember": {"enabled": True}})

    assert done.returncode == 0, done.stderr
    assert "name: attemptreports.tuneyard.dev" in done.stdout
