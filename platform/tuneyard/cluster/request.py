"""One request to an API server, as RBAC names it: verb, resource, namespace, name."""

from __future__ import annotations

from dataclasses import dataclass

from tuneyard.api import API_VERSION

GROUP, VERSION = API_VERSION.split("/")
_METHODS = {"get": "GET", "list": "GET", "watch": "GET", "create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}
_KINDS = {"jobspecs": "JobSpec", "clusters": "Cluster", "secrets": "Secret"}
_CLUSTER_SCOPED = ("clusters",)


@dataclass(frozen=True)
class Request:
    """`namespace` is empty for objects of the whole cluster, and for a list over all namespaces."""

    verb: str
    resource: str
    namespace: str = ""
    name: str = ""

    @property
    def method(self) -> str:
        return _METHODS[self.verb]

    @property
    def group(self) -> str:
        return "" if self.resource == "secrets" else GROUP

    @property
    def namespaced(self) -> bool:
        return self.resource not in _CLUSTER_SCOPED

    @property
    def path(self) -> str:
        root = f"/apis/{self.group}/{VERSION}" if self.group else "/api/v1"
        inside = f"/namespaces/{self.namespace}" if self.namespace else ""
        one = f"/{self.name}" if self.name and self.verb not in ("create", "list", "watch") else ""
        return f"{root}{inside}/{self.resource}{one}"

    @property
    def what(self) -> str:
        """The object for people: `JobSpec maps/support-bot`."""
        return f"{_KINDS[self.resource]} {f'{self.namespace}/' if self.namespace else ''}{self.name}"
