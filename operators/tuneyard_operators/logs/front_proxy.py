"""Identifies the reader of a request: the API server names the reader in headers, and proves its own identity by a front-proxy certificate.

Kubernetes, "Configure the Aggregation Layer": the API server presents a client certificate of the authority in the ConfigMap
`kube-system/extension-apiserver-authentication`, with a common name from that ConfigMap's list. Headers of other clients are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import unquote

from tuneyard_operators.logs.problems import Problem

CONFIG_NAMESPACE, CONFIG_NAME = "kube-system", "extension-apiserver-authentication"
_USER, _UID, _GROUP, _EXTRA = "X-Remote-User", "X-Remote-Uid", "X-Remote-Group", "x-remote-extra-"
"""The headers that API servers send. Further names that an API server accepts itself are ignored: a reader could have written them."""


class Headers(Protocol):
    """Headers of a request; a name may occur several times."""

    def get(self, name: str, default: str, /) -> str: ...

    def getall(self, name: str, default: list[str], /) -> list[str]: ...

    def items(self) -> Any: ...


@dataclass(frozen=True)
class FrontProxy:
    """`authority`: PEM of the authority that signs front-proxy certificates; `names`: their allowed common names, empty to allow any."""

    authority: str
    names: frozenset[str]

    @classmethod
    def from_config_map(cls, data: Mapping[str, str]) -> FrontProxy:
        """The front proxy of a ConfigMap's data. Raises ValueError if the API server has no front proxy, or an entry cannot be read."""
        authority = data.get("requestheader-client-ca-file", "")
        if "BEGIN CERTIFICATE" not in authority:
            raise ValueError(f"{CONFIG_NAMESPACE}/{CONFIG_NAME} has no requestheader-client-ca-file: the API server aggregates no APIs")
        names = json.loads(data.get("requestheader-allowed-names") or "[]")
        if not isinstance(names, list):
            raise ValueError(f"requestheader-allowed-names of {CONFIG_NAMESPACE}/{CONFIG_NAME} is no list")
        return cls(authority, frozenset(map(str, names)))


@dataclass(frozen=True)
class Asker:
    """The reader: a user as the API server authenticated them, in the fields of a SubjectAccessReview."""

    user: str
    uid: str
    groups: tuple[str, ...]
    extra: tuple[tuple[str, tuple[str, ...]], ...]

    def to_json(self) -> dict[str, Any]:
        more = {"uid": self.uid} if self.uid else {}
        return {"user": self.user, "groups": list(self.groups), "extra": {name: list(values) for name, values in self.extra}, **more}


def asker_of(headers: Headers, certificate: Mapping[str, Any] | None, proxy: FrontProxy) -> Asker:
    """The reader of a request. Raises Problem (401).

    `certificate`: the client's certificate, verified against `proxy.authority`, in the form of `ssl`.
    """
    if not certificate:
        raise Problem(401, "send the query to the API server, which authenticates you: kubectl get --raw …")
    shown = _common_names(certificate.get("subject", ()))
    if proxy.names and not proxy.names & shown:
        raise Problem(401, "this certificate is not that of the API server's front proxy")
    user = headers.get(_USER, "")
    if not user:
        raise Problem(401, f"the front proxy names no user: {_USER} is missing")
    found = Asker(user, headers.get(_UID, ""), tuple(headers.getall(_GROUP, [])), _extra(headers))
    try:
        "".join([found.user, found.uid, *found.groups, *(value for _, values in found.extra for value in values)]).encode()
    except UnicodeEncodeError:
        raise Problem(401, "the name of the user is not UTF-8") from None
    return found


def _common_names(subject: Sequence[Sequence[Sequence[str]]]) -> set[str]:
    return {value for part in subject for name, value in part if name == "commonName"}


def _extra(headers: Headers) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found: dict[str, list[str]] = {}
    for name, value in headers.items():
        if name.lower().startswith(_EXTRA):
            found.setdefault(unquote(name[len(_EXTRA) :].lower()), []).append(value)
    return tuple((name, tuple(values)) for name, values in sorted(found.items()))
