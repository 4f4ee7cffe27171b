"""Rights: exactly these, and the table in docs/install.md says the same."""

from __future__ import annotations

import re

import pytest
from tests.unit.charts import rendering
from tests.unit.charts.rendering import HUB, MEMBER, VARIANTS, Grant, grants, of_kind, render, render_variant

pytestmark = pytest.mark.usefixtures("helm_here")
INSTALL = rendering.CHARTS.parent / "docs" / "install.md"

ON_HUB, EVERYWHERE = "tuneyard-system", "all namespaces"
HUB_ACCOUNT, MEMBER_ACCOUNT, JOB_ACCOUNT = "tuneyard-system/tuneyard-hub", "tuneyard/tuneyard-hub", "tuneyard/tuneyard-job"
CONSOLE_ACCOUNT = "tuneyard-system/tuneyard-hub-console"
HUB_GRANTS = {
    Grant(HUB_ACCOUNT, EVERYWHERE, "jobspecs.tuneyard.dev", "create, delete, get, list, patch, watch"),
    *(
        Grant(HUB_ACCOUNT, EVERYWHERE, f"{kind}.tuneyard.dev", "get, list, watch")
        for kind in ("clusters", "modeltemplates", "schedules", "teams")
    ),
    *(
        Grant(HUB_ACCOUNT, EVERYWHERE, f"{kind}/status.tuneyard.dev", "patch, update")
        for kind in ("clusters", "jobspecs", "schedules", "teams")
    ),
    Grant(HUB_ACCOUNT, EVERYWHERE, "events", "create, patch"),
    Grant(HUB_ACCOUNT, EVERYWHERE, "secrets", "get"),
    Grant(HUB_ACCOUNT, ON_HUB, "secrets", "get"),
    Grant(HUB_ACCOUNT, EVERYWHERE, "subjectaccessreviews.authorization.k8s.io", "create"),
    Grant(HUB_ACCOUNT, EVERYWHERE, "apiservices.apiregistration.k8s.io v1alpha1.logs.tuneyard.dev", "get, patch"),
    Grant(HUB_ACCOUNT, ON_HUB, "secrets tuneyard-hub-logs", "get, patch"),
    Grant(HUB_ACCOUNT, "kube-system", "configmaps extension-apiserver-authentication", "get"),
    Grant(HUB_ACCOUNT, ON_HUB, "leases.coordination.k8s.io", "create"),
    Grant(HUB_ACCOUNT, ON_HUB, "leases.coordination.k8s.io tuneyard-hub", "get, update"),
}
INVENTORY = {("nodes", "get, list, watch"), ("pods", "list, watch")}
IN_JOBS = {
    ("rayjobs.ray.io", "create, delete, get, list, patch, watch"),
    ("rayclusters.ray.io", "get, list, watch"),
    ("attemptreports.tuneyard.dev", "create, delete, get, list, patch, watch"),
    ("secrets", "create, delete, get, list, patch, watch"),
    ("pods", "create, delete, get, list, watch"),
    ("pods/log", "get"),
    ("services", "create, get, patch"),
    ("networkpolicies.networking.k8s.io", "create, delete, get, list, watch"),
    ("events", "list"),
    ("serviceaccounts tuneyard-autoscaler", "get"),
}
JOB_GRANTS = {
    Grant(JOB_ACCOUNT, "tuneyard", "attemptreports.tuneyard.dev", "create, get"),
    Grant(JOB_ACCOUNT, "tuneyard", "attemptreports/status.tuneyard.dev", "patch"),
}


def member_grants(account: str, namespace: str = "tuneyard") -> set[Grant]:
    inventory = {Grant(account, EVERYWHERE, resource, verbs) for resource, verbs in INVENTORY}
    return inventory | {Grant(account, namespace, resource, verbs) for resource, verbs in IN_JOBS}


def test_the_hub_may_do_this_and_no_more() -> None:
    assert grants(render(HUB)) == HUB_GRANTS


def test_run_history_needs_two_rights_more() -> None:
    name, patched = "namespaces", "apiservices.apiregistration.k8s.io v1alpha1.history.tuneyard.dev"
    more = {Grant(HUB_ACCOUNT, EVERYWHERE, name, "get"), Grant(HUB_ACCOUNT, EVERYWHERE, patched, "get, patch")}

    assert grants(render_variant("hub-with-history")) == HUB_GRANTS | more


def test_a_member_grants_this_and_no_more() -> None:
    assert grants(render(MEMBER)) == member_grants(MEMBER_ACCOUNT) | JOB_GRANTS


def test_secrets_can_be_limited_to_namespaces() -> None:
    found = grants(render_variant("hub-few-secrets"))

    assert {each.where for each in found if each.resource == "secrets"} == {"tuneyard-system", "maps", "rides"}
    assert {each.account for each in found} == {HUB_ACCOUNT, "system:authenticated"}


def test_a_hub_that_is_its_own_member_uses_its_own_account() -> None:
    objects = render(HUB, {"selfMember": {"enabled": True}})

    assert grants(objects) == HUB_GRANTS | member_grants(HUB_ACCOUNT) | JOB_GRANTS
    tokens = [each for each in of_kind(objects, "Secret") if each["type"] == "kubernetes.io/service-account-token"]
    assert [each["metadata"]["annotations"]["kubernetes.io/service-account.name"] for each in tokens] == ["tuneyard-job"]


def test_the_console_may_list_names_of_namespaces_and_impersonate_behind_a_proxy_alone() -> None:
    own = {Grant(CONSOLE_ACCOUNT, EVERYWHERE, "namespaces", "list")}
    acting = {Grant(CONSOLE_ACCOUNT, EVERYWHERE, what, "impersonate") for what in ("users", "groups ml-team")}

    assert grants(render_variant("hub-with-console")) == HUB_GRANTS | own
    assert grants(render_variant("hub-with-console-behind-a-proxy")) == HUB_GRANTS | own | acting


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_role_has_a_wildcard_or_a_way_up(variant: str) -> None:
    for role in of_kind(render_variant(variant), "Role", "ClusterRole"):
        for rule in role["rules"]:
            said = [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            if role["metadata"]["name"] == "tuneyard-hub-console":
                said = [word for word in said if word != "impersonate"]
            assert not {"*", "escalate", "bind", "impersonate", "pods/exec", "nodes/proxy", "serviceaccounts/token"} & set(said), role[
                "metadata"
            ]
            assert not any("*" in word for word in said), role["metadata"]


def test_people_who_may_edit_a_namespace_submit_jobs_there() -> None:
    roles = {each["metadata"]["name"]: each for each in of_kind(render(HUB), "ClusterRole")}

    edit, view = roles["tuneyard-edit"], roles["tuneyard-view"]
    assert edit["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-edit"] == "true"
    assert view["rules"][0]["verbs"] == ["get", "list", "watch"]
    assert not any("status" in resource for role in (edit, view) for rule in role["rules"] for resource in rule["resources"])


def test_the_page_shows_the_same_rights() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+?) \| `([^`]+)` \| ([^|]+?) \|", INSTALL.read_text(), re.MULTILINE)

    shown = {Grant(account, where.strip("`"), resource, verbs) for account, where, resource, verbs in rows}
    assert shown == HUB_GRANTS | member_grants(MEMBER_ACCOUNT) | JOB_GRANTS
