"""Whom an author's files are sent to: never a server that a namespace's Secret names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from tuneyard.cluster.storage_access import storage_access_of_author

SECRET = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "word", "AWS_ENDPOINT_URL": "https://elsewhere.example.com"}
OURS = {"AWS_ENDPOINT_URL": "https://s3.example.com"}


class Hub:
    address = SimpleNamespace(namespace="maps")

    def clusters(self) -> Sequence[Any]:
        return [SimpleNamespace(endpoint=OURS["AWS_ENDPOINT_URL"], storage=OURS, name="east")]

    def secret(self, _name: str, _namespace: str) -> Mapping[str, str]:
        return SECRET


def access(*env: Mapping[str, str]) -> Mapping[str, str]:
    manifest = {"metadata": {"name": "bot"}, "spec": {"env": list(env)}}
    return storage_access_of_author(Hub(), manifest, "s3://bucket/out", {}).variables  # type: ignore[arg-type]


def test_keys_come_from_the_secret_and_the_server_from_the_clusters() -> None:
    assert access() == {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "word", **OURS}


def test_an_author_may_name_another_server() -> None:
    theirs = {"AWS_ENDPOINT_URL": "https://theirs.example.com"}
    assert access({"name": "AWS_ENDPOINT_URL", "value": theirs["AWS_ENDPOINT_URL"]}) == {**access(), **theirs}
