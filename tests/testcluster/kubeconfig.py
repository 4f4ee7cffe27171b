"""Kubeconfigs: complete in one file, so that they can travel as a Secret."""

from __future__ import annotations

import base64
from pathlib import Path

import yaml
from tests.testcluster.certificates import Pair


def kubeconfig(name: str, server: str, authority: Path, client: Pair) -> str:
    """A kubeconfig with one context, called `name`."""

    def data(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": data(authority)}}],
            "users": [{"name": name, "user": {"client-certificate-data": data(client.certificate), "client-key-data": data(client.key)}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        },
        sort_keys=False,
    )
