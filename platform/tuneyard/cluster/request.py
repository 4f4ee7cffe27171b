"""One request to an API server, as RBAC names it: verb, resource, namespace, name, subresource."""

from __future__ import annotations

from dataclasses import dataclass

from tuneyard.api import API_VERSION
from tuneyard.cluster.log_api import LOG_API_VERSION

_METHODS = {"get": "GET", "list": "GET", "watch": "GET", "create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}
_KINDS = {"jobspecs": "JobSpec", "clusters": "Cluster", "modeltemplates": "ModelTemplate", "secrets": "Secret"}
_CLUSTER_SCOPED = ("clusters", "modeltemplates", "teams")


@dataclass(frozen=True)
class Request:
    """`namespace` is empty for objects of the whole cluster, and for a list over all namespaces."""

    verb: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def method(self) -> str:
        return _METHODS[self.verb]

    @property
    def api_version(self) -> str:
        return "v1" if self.resource == "secrets" else LOG_API_VERSION if self.subresource == "log" else API_VERSION

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def namespaced(self) -> bool:
        return self.resource not in _CLUSTER_SCOPED

    @property
    def path(self) -> str:
        root = f"/apis/{self.api_version}" if self.group else f"/api/{self.api_version}"
        inside = f"/namespaces/{self.namespace}" if self.namespace else ""
        one = f"/{self.name}" if self.name and self.verb not in ("create", "list", "watch") else ""
        below = f"/{self.subresource}" if self.subresource else ""
        return f"{root}{inside}/{self.resource}{one}{below}"

    @property
    def what(self) -> str:
        """The object for people: `JobSpec maps/support-bot`."""
        return f"{_KINDS[self.resource]} {f'{self.namespace}/' if self.namespace else ''}{self.name}"


@dataclass(frozen=True)
class Discovery:
    """The question whether an API server has a group of APIs."""

    group: str

    @property
    def method(self) -> str:
        return "GET"

    @property
    def path(self) -> str:
        return f"/apis/{self.group}"
