"""Pages over a hub, read with the rights of each reader: of the kubeconfig's user, or of whoever is behind a request."""

from tuneyard.console.hub.reader import OneReader, Reader, Readers
from tuneyard.console.hub.source import HubJobs

__all__ = ["HubJobs", "OneReader", "Reader", "Readers"]
