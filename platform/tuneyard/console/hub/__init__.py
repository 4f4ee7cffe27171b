"""Pages over a hub, read with the kubeconfig and the rights of the reader."""

from tuneyard.console.hub.source import HubJobs

__all__ = ["HubJobs"]
