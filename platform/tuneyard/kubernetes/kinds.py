"""The kinds of object that Tuneyard reads or writes, and the paths at which API servers keep them."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from tuneyard.api.base import API_VERSION
from tuneyard.api.errors import BadInput


@dataclass(frozen=True)
class Kind:
    """A kind of object. `api_version`: group and version, or the version alone in the core group."""

    name: str
    api_version: str
    plural: str
    namespaced: bool = True

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def qualified(self) -> str:
        """The resource as kubectl and RBAC name it: `jobspecs.tuneyard.dev`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str | None = None, name: str | None = None, *, subresource: str = "") -> str:
        """Path of one object, or, where `name` is None, of all objects: of a namespace, or of the cluster.

        Raises BadInput for a name that would lead to another path: an empty one to all objects, dots to a folder above.
        """
        if name is not None and name in ("", ".", ".."):
            raise BadInput(f"{name!r} is not the name of a {self.name}", "give the name of one object")
        root = f"/api/{self.api_version}" if "/" not in self.api_version else f"/apis/{self.api_version}"
        parts = [root]
        if self.namespaced and namespace:
            parts.append(f"namespaces/{quote(namespace, safe='')}")
        parts.append(self.plural)
        parts += [quote(part, safe="") for part in (name, subresource) if part]
        return "/".join(parts)


JOBSPEC = Kind("JobSpec", API_VERSION, "jobspecs")
CLUSTER = Kind("Cluster", API_VERSION, "clusters", namespaced=False)
TEAM = Kind("Team", API_VERSION, "teams", namespaced=False)
SCHEDULE = Kind("Schedule", API_VERSION, "schedules")
MODEL_TEMPLATE = Kind("ModelTemplate", API_VERSION, "modeltemplates", namespaced=False)
ATTEMPT_REPORT = Kind("AttemptReport", API_VERSION, "attemptreports")
RAYJOB = Kind("RayJob", "ray.io/v1", "rayjobs")
POD = Kind("Pod", "v1", "pods")
NODE = Kind("Node", "v1", "nodes", namespaced=False)
NETWORK_POLICY = Kind("NetworkPolicy", "networking.k8s.io/v1", "networkpolicies")
SECRET = Kind("Secret", "v1", "secrets")
SERVICE = Kind("Service", "v1", "services")
SERVICE_ACCOUNT = Kind("ServiceAccount", "v1", "serviceaccounts")
CONFIG_MAP = Kind("ConfigMap", "v1", "configmaps")
API_SERVICE = Kind("APIService", "apiregistration.k8s.io/v1", "apiservices", namespaced=False)
SUBJECT_ACCESS_REVIEW = Kind("SubjectAccessReview", "authorization.k8s.io/v1", "subjectaccessreviews", namespaced=False)
SELF_SUBJECT_ACCESS_REVIEW = Kind("SelfSubjectAccessReview", "authorization.k8s.io/v1", "selfsubjectaccessreviews", namespaced=False)
SELF_SUBJECT_REVIEW = Kind("SelfSubjectReview", "authentication.k8s.io/v1", "selfsubjectreviews", namespaced=False)
NAMESPACE = Kind("Namespace", "v1", "namespaces", namespaced=False)
EVENT = Kind("Event", "v1", "events")
LEASE = Kind("Lease", "coordination.k8s.io/v1", "leases")
