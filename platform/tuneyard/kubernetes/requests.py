"""One request to an API server as a value: verb, kind, object, parameters, body. Functions build each verb's request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote, urlencode

from tuneyard.kubernetes.kinds import Kind

Verb = Literal["get", "list", "watch", "create", "update", "patch", "delete"]
"""As RBAC names it."""
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1,application/json"
_METHODS: Mapping[Verb, str] = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
}
_ON_COLLECTION = ("list", "watch", "create")


@dataclass(frozen=True)
class Request:
    """`namespace` is empty for objects of the cluster, and for lists over all namespaces. `name` of a new object is for messages alone."""

    verb: Verb
    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    metadata_only: bool = False
    """Whether the answer holds the metadata of the object alone: the server sends no more, and nobody decodes more."""
    as_table: bool = False
    """Whether a list is answered as the table that `kubectl get -o wide` prints."""

    @property
    def method(self) -> str:
        return _METHODS[self.verb]

    @property
    def path(self) -> str:
        name = None if self.verb in _ON_COLLECTION else self.name
        return self.kind.path(self.namespace, name, subresource=self.subresource)

    @property
    def target(self) -> str:
        """Path and query, quoted."""
        return f"{self.path}?{urlencode(self.parameters)}" if self.parameters else self.path

    @property
    def headers(self) -> dict[str, str]:
        """Accept, and the content type of the body."""
        accept = {"Accept": METADATA_ONLY if self.metadata_only else TABLE if self.as_table else JSON}
        if self.body is None:
            return accept
        return {**accept, "Content-Type": MERGE_PATCH if self.verb == "patch" else JSON}

    @property
    def resource(self) -> str:
        """As RBAC and metrics name it: `jobspecs/status`."""
        return f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural

    @property
    def label(self) -> str:
        """The object for people: `JobSpec maps/support-bot`."""
        return f"{self.kind.name} {f'{self.namespace}/' if self.namespace else ''}{self.name}"


def get_object(
    kind: Kind, namespace: str | None, name: str, *, subresource: str = "", parameters: Mapping[str, str] | None = None
) -> Request:
    """One object, or a subresource of it with the parameters that it takes."""
    return Request("get", kind, namespace or "", name, subresource, parameters or {})


def list_objects(
    kind: Kind,
    namespace: str | None = None,
    *,
    labels: str = "",
    fields: Mapping[str, str] | None = None,
    limit: int | None = None,
    token: str = "",
) -> Request:
    """All objects of a kind, or a page of `limit` objects. `token`: the `continue` of the page before."""
    paging = {"limit": str(limit or ""), "continue": token}
    return Request("list", kind, namespace or "", parameters=_given({**_selectors(labels, fields), **paging}))


def table_of(kind: Kind, namespace: str | None = None) -> Request:
    """All objects of a kind as a table without their metadata, from the API server's memory: a server beside others may be a moment
    behind."""
    return Request("list", kind, namespace or "", parameters={"resourceVersion": "0", "includeObject": "None"}, as_table=True)


def watch_objects(
    kind: Kind,
    namespace: str | None = None,
    *,
    since: str,
    timeout_s: float,
    labels: str = "",
    fields: Mapping[str, str] | None = None,
) -> Request:
    """The changes of a kind after the resource version `since`, until the server ends the watch after `timeout_s`."""
    watching = {"watch": "1", "resourceVersion": since, "allowWatchBookmarks": "true", "timeoutSeconds": str(max(1, round(timeout_s)))}
    return Request("watch", kind, namespace or "", parameters=_given({**watching, **_selectors(labels, fields)}))


def create_object(
    kind: Kind,
    namespace: str | None,
    body: Mapping[str, Any],
    *,
    dry_run: bool = False,
    strict: bool = False,
    metadata_only: bool = False,
) -> Request:
    """A new object. `strict`: the server refuses fields that it does not know, in place of dropping them."""
    whole = {"apiVersion": kind.api_version, "kind": kind.name, **body}
    name = str(body.get("metadata", {}).get("name", ""))
    return Request("create", kind, namespace or "", name, "", _options(dry_run, strict), whole, metadata_only)


def replace_object(
    kind: Kind, namespace: str | None, name: str, body: Mapping[str, Any], *, dry_run: bool = False, strict: bool = False
) -> Request:
    """The whole object anew. The server answers with a Conflict if `body` holds a resource version that is not the newest."""
    return Request("update", kind, namespace or "", name, "", _options(dry_run, strict), body)


def patch_object(
    kind: Kind,
    namespace: str | None,
    name: str,
    body: Mapping[str, Any],
    *,
    subresource: str = "",
    strict: bool = False,
    metadata_only: bool = False,
) -> Request:
    """A JSON merge patch: a value of None removes a field. `objects.over` makes a patch of one version of the object alone."""
    return Request("patch", kind, namespace or "", name, subresource, _options(False, strict), body, metadata_only)


def delete_object(kind: Kind, namespace: str | None, name: str) -> Request:
    """The end of an object. Kubernetes deletes its dependents later, in the background."""
    return Request("delete", kind, namespace or "", name, "", {"propagationPolicy": "Background"}, metadata_only=True)


def group_path(group: str) -> str:
    """Path at which an API server describes a group of APIs; it answers 404 for a group that it does not serve."""
    return f"/apis/{quote(group, safe='')}"


def _selectors(labels: str, fields: Mapping[str, str] | None) -> dict[str, str]:
    chosen = ",".join(f"{name}={_escaped(value)}" for name, value in (fields or {}).items())
    return {"labelSelector": labels, "fieldSelector": chosen}


def _escaped(value: str) -> str:
    """A value in a field selector (apimachinery, `fields.EscapeValue`)."""
    return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")


def _options(dry_run: bool, strict: bool) -> dict[str, str]:
    return {**({"dryRun": "All"} if dry_run else {}), **({"fieldValidation": "Strict"} if strict else {})}


def _given(parameters: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in parameters.items() if value}
