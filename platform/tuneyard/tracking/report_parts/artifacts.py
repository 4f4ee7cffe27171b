"""Artifacts of a task as links: beside the report, on this machine, in the console of a cloud, or as a command that copies them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote


@dataclass(frozen=True)
class Artifact:
    """`link`: a page or folder that a browser opens; empty if none is known. `command`: copies the artifact to this machine."""

    name: str
    uri: str
    link: str = ""
    command: str = ""


def artifacts_of(task: Mapping[str, Any], output: str, *, own_endpoint: bool) -> list[Artifact]:
    """Artifacts of a task, and the rows of a score task.

    `output`: URI of the folder that holds the report. `own_endpoint`: `s3://` is another service than Amazon's, without a known console.
    """
    return [_artifact(name, uri, output, own_endpoint) for name, uri in _named(task)]


def _named(task: Mapping[str, Any]) -> list[tuple[str, str]]:
    artifacts = task.get("artifacts") or {}
    if isinstance(artifacts, Mapping):
        found = [(str(name), value if isinstance(value, str) else json.dumps(value)) for name, value in artifacts.items() if value]
    else:
        found = [("artifact", str(uri)) for uri in artifacts]
    rows = task.get("output") if task.get("kind") == "score" else None
    return [*found, *([("rows", str(rows))] if rows else [])]


def _artifact(name: str, uri: str, output: str, own_endpoint: bool) -> Artifact:
    scheme, _, rest = uri.partition("://") if "://" in uri else ("file", "", uri)
    if scheme == "file":
        return Artifact(name, uri, _local_link(rest, output))
    link = {"s3": "" if own_endpoint else _amazon(uri), "gs": _google(uri)}.get(scheme, "")
    return Artifact(name, uri, link, _command(scheme, uri))


def _local_link(path: str, output: str) -> str:
    """Relative for what lies below the report's folder, so that it holds when the folder is moved."""
    folder = output.removeprefix("file://")
    if not path.startswith("/"):
        return ""
    if folder.startswith("/") and ".." not in path and PurePosixPath(path).is_relative_to(folder):
        return f"./{_quoted(str(PurePosixPath(path).relative_to(folder)))}"
    return f"file:///{_quoted(path.lstrip('/'))}"


def _amazon(uri: str) -> str:
    bucket, key = _place(uri)
    return f"https://console.aws.amazon.com/s3/buckets/{_quoted(bucket)}?prefix={_quoted(key, safe='')}/"


def _google(uri: str) -> str:
    bucket, key = _place(uri)
    return f"https://console.cloud.google.com/storage/browser/{_quoted(bucket)}/{_quoted(key)}"


def _place(uri: str) -> tuple[str, str]:
    """Bucket and key."""
    bucket, _, key = uri.partition("://")[2].partition("/")
    return bucket, key.strip("/")


def _quoted(text: str, safe: str = "/") -> str:
    return quote(text, safe=safe, errors="replace")


def _command(scheme: str, uri: str) -> str:
    commands = {"s3": "aws s3 cp --recursive", "gs": "gcloud storage cp --recursive", "hdfs": "hdfs dfs -get"}
    return f"{commands[scheme]} {shlex.quote(uri)} ." if scheme in commands else ""
