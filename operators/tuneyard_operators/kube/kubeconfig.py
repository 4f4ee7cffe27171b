"""Checks a member's kubeconfig, which others may have written: it may hold a server, its certificate authority and inline credentials.

Fields that run a program or read a file of the hub's are refused. No message quotes a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import yaml

_CLUSTER = ("server", "certificate-authority-data", "insecure-skip-tls-verify", "tls-server-name", "proxy-url", "disable-compression")
_USER = ("token", "client-certificate-data", "client-key-data", "username", "password")
_IGNORED = ("extensions",)
_RUN_OR_READ = {
    "exec": "runs a program",
    "auth-provider": "runs code of a cloud",
    "certificate-authority": "reads a file",
    "client-certificate": "reads a file",
    "client-key": "reads a file",
    "tokenFile": "reads a file",
}
_HEADER = re.compile(r"[\x21-\x7e]+")
_TEXT = re.compile(r"[\x20-\x7e]+")


class Unusable(ValueError):
    """The reason why a kubeconfig is refused."""


def inline_kubeconfig(text: str) -> dict[str, Any]:
    """A kubeconfig with the current context of `text`, its cluster and its user alone.

    Raises Unusable if one of them is missing, or holds more than a server and inline credentials.
    """
    document = _document(text)
    context = _entry(document, "contexts", "context", document.get("current-context"))
    cluster = _checked(_entry(document, "clusters", "cluster", context.get("cluster")), _CLUSTER, "cluster")
    user = _checked(_entry(document, "users", "user", context.get("user")), _USER, "user")
    _check_server(cluster.get("server"), "server")
    if "proxy-url" in cluster:
        _check_server(cluster["proxy-url"], "proxy-url", credentials=True)
    if "token" in user and not _HEADER.fullmatch(user["token"]):
        raise Unusable("its token holds spaces, line ends or other characters that tokens cannot have")
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "member",
        "contexts": [{"name": "member", "context": {"cluster": "member", "user": "hub"}}],
        "clusters": [{"name": "member", "cluster": cluster}],
        "users": [{"name": "hub", "user": user}],
    }


def _document(text: str) -> Mapping[str, Any]:
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:  # its message quotes the line
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        raise Unusable(f"it is no YAML: there is an error{where}") from None
    if not isinstance(found, dict):
        raise Unusable("it is not a YAML mapping")
    return found


def _entry(document: Mapping[str, Any], plural: str, singular: str, name: object) -> Mapping[str, Any]:
    """The entry of this name in one of the lists of a kubeconfig."""
    if not isinstance(name, str) or not name:
        raise Unusable("it names no current-context" if singular == "context" else f"its current context names no {singular}")
    items = document.get(plural)
    for item in items if isinstance(items, list) else []:
        if isinstance(item, dict) and item.get("name") == name and isinstance(item.get(singular), dict):
            found: Mapping[str, Any] = item[singular]
            return found
    raise Unusable(f"it has no {singular} of the name in its {'current-context' if singular == 'context' else 'current context'}")


def _checked(found: Mapping[str, Any], allowed: tuple[str, ...], what: str) -> dict[str, Any]:
    for field, value in found.items():
        if field in _IGNORED:
            continue
        if field not in allowed:
            does = _RUN_OR_READ.get(str(field), "the hub does not accept")
            raise Unusable(
                f"its {what} has {field!s:.40}, which {does}; allowed are {', '.join(allowed)}: "
                "make one from the account tuneyard-hub, as `helm get notes tuneyard-member` says"
            )
        if not isinstance(value, bool) and (not isinstance(value, str) or not _TEXT.fullmatch(value.replace("\n", ""))):
            raise Unusable(f"{field} of its {what} is no text")
    return {field: value for field, value in found.items() if field in allowed}


def _check_server(url: object, field: str, *, credentials: bool = False) -> None:
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise Unusable(f"its {field} is no address such as https://10.0.0.1:6443")
    if not credentials and (parts.username or parts.password):
        raise Unusable(f"its {field} holds a user name or password; set username and password, or better a token")
