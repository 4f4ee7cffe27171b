"""The console on a hub, for many readers: who they are, their sessions, its metrics, and the process that serves it.

A reader is known by a bearer token of the hub's API server (`TokenReaders`), or by the headers of a proxy that has authenticated them
(`ProxyReaders`). Each request to the hub is made with the reader's token, or by impersonation: the API server decides about every read and
write, and its audit log names the reader. The console has no rights of its own but to list the names of namespaces.
"""

from tuneyard.console.hosted.application import hosted_app
from tuneyard.console.hosted.proxy import ProxyReaders, ProxyTrust
from tuneyard.console.hosted.sessions import Sessions
from tuneyard.console.hosted.tokens import TokenReaders

__all__ = ["ProxyReaders", "ProxyTrust", "Sessions", "TokenReaders", "hosted_app"]
