"""The reader of a request: the API server names them in headers, and proves by its front-proxy certificate that it is the API server.

Kubernetes, "Configure the Aggregation Layer": the API server shows a client certificate of the authority in the ConfigMap
`kube-system/extension-apiserver-authentication`, with a common name of that ConfigMap's list. Headers of other clients count for nothing.
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
"""What API servers send, whatever further names of headers they accept themselves: those a reader could have written."""


class Headers(Protocol):
    """Headers of a request; a name may stand there several times."""

    def get(self, name: str, default: str, /) -> str: ...

    def getall(self, name: str, default: list[str], /) -> list[str]: ...

    def items(self) -> Any: ...


@dataclass(frozen=True)
class FrontProxy:
    """`authority`: PEM of the authority that signs front-proxy certificates; `names`: their common names, any where it is empty."""

    authority: str
    names: frozenset[str]

    @classmethod
    def from_config_map(cls, data: Mapping[str, str]) -> FrontProxy:
        """Raises ValueError where the API server has no front proxy, or the entries cannot be read."""
        authority = data.get("requestheader-client-ca-file", "")
        if "BEGIN CERTIFICATE" not in authority:
            raise ValueError(f"{CONFIG_NAMESPACE}/{CONFIG_NAME} has no requestheader-client-ca-file: the API server aggregates no APIs")
        names = json.loads(data.get("requestheader-allowed-names") or "[]")
        if not isinstance(names, list):
            raise ValueError(f"requestheader-allowed-names of {CONFIG_NAMESPACE}/{CONFIG_NAME} is no list")
        return cls(authority, frozenset(map(str, names)))


@dataclass(frozen=True)
class Asker:
    """A user as the API server knows them, and as a SubjectAccessReview names them."""

    user: str
    uid: str
    groups: tuple[str, ...]
    extra: tuple[tuple[str, tuple[str, ...]], ...]

    def to_json(self) -> dict[str, Any]:
        more = {"uid": self.uid} if self.uid else {}
        return {"user": self.user, "groups": list(self.groups), "extra": {name: list(values) for name, values in self.extra}, **more}


def asker_of(headers: Headers, certificate: Mapping[str, Any] | None, proxy: FrontProxy) -> Asker:
    """The reader. `certificate`: the client's, verified against `proxy.authority`, as `ssl` describes it. Raises Problem (401)."""
    if not certificate:
        raise Problem(401, "ask the API server, which tells this one who asks: kubectl get --raw …")
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
        raise Problem(401, "the user is named in bytes that are no UTF-8") from None
    return found


def _common_names(subject: Sequence[Sequence[Sequence[str]]]) -> set[str]:
    return {value for part in subject for name, value in part if name == "commonName"}


def _extra(headers: Headers) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found: dict[str, list[str]] = {}
    for name, value in headers.items():
        if name.lower().startswith(_EXTRA):
            found.setdefault(unquote(name[len(_EXTRA) :].lower()), []).append(value)
    return tuple((name, tuple(values)) for name, values in sorted(found.items()))
