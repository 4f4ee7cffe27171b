"""The example of oauth2-proxy in docs/console.md beside the helm command above it."""

from __future__ import annotations

import re
from typing import Any

import yaml
from tests.testcluster.images import ROOT

from tuneyard.console.hosted.proxy import ProxyTrust

PAGE = (ROOT / "docs" / "console.md").read_text()


def block(start: str) -> Any:
    found = re.search(rf"```ya?ml\n({start}.*?)```", PAGE, re.DOTALL)
    assert found
    return yaml.safe_load(found[1])


def test_the_headers_of_the_example_are_those_that_the_console_reads() -> None:
    told = dict(re.findall(r"console\.proxy\.(\w+)=([\w-]+)", PAGE))
    trust = ProxyTrust(user_header=told["userHeader"], groups_header="X-Forwarded-Groups", secret="s" * 32)
    sent = {each["name"]: each["values"][0] for each in block("upstreamConfig")["injectRequestHeaders"]}
    assert sent == {
        trust.user_header: {"claimSource": {"claim": "email"}},
        trust.groups_header: {"claimSource": {"claim": "groups"}},
        trust.secret_header: {"secretSource": {"fromEnv": "TUNEYARD_PROXY_SECRET"}},
    }


def test_the_group_of_the_example_may_be_impersonated_by_its_command() -> None:
    (subject,) = block("apiVersion: rbac")["subjects"]
    groups = re.search(r"console\.proxy\.groups=\{([\w,-]+)\}", PAGE)
    assert groups
    assert subject["name"] in groups[1].split(",")
