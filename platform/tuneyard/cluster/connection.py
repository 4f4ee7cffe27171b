"""The hub and its user, found as kubectl finds them: --kubeconfig, KUBECONFIG, ~/.kube/config, or a pod's service account."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput, TuneyardError
from tuneyard.api.loading_reasons import nearest
from tuneyard.cluster.address import Address
from tuneyard.cluster.api_server import ApiServer
from tuneyard.cluster.hub import Hub

_NO_HUB = "set KUBECONFIG (or --kubeconfig) to the file that the hub's administrators gave you; `tuneyard run FILE` needs no hub"
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def open_hub(
    *,
    namespace: str | None = None,
    context: str | None = None,
    kubeconfig: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Hub:
    """The hub of kubectl under the same flags. Sends no request.

    `namespace` defaults to the context's, then to `default`. Raises TuneyardError where no hub is configured, or the file is unusable.
    """
    environment = os.environ if environment is None else environment
    configuration, found = _found(kubeconfig, context, environment)
    address = Address(found.server, namespace or found.namespace, found.source, _flags(kubeconfig, context))
    return Hub(ApiServer(address, configuration))


class HubAccess:
    """One hub for a server that asks it in the names of many readers. Sends no request.

    Found as `open_hub` finds it: `own` asks with the credentials found there. Raises what `open_hub` raises.
    """

    def __init__(self, *, kubeconfig: str | Path | None = None, environment: Mapping[str, str] | None = None) -> None:
        environment = os.environ if environment is None else environment
        self._configuration, found = _found(kubeconfig, None, environment)
        self.address = Address(found.server, "default", found.source)

    def own(self) -> Hub:
        return Hub(ApiServer(self.address, self._configuration))

    def with_token(self, token: str) -> Hub:
        """The hub, asked with a reader's token and nothing else: a client certificate of this server would take precedence."""
        import kubernetes.client

        own, bare = self._configuration, kubernetes.client.Configuration()
        for name in ("host", "ssl_ca_cert", "verify_ssl", "tls_server_name", "proxy", "no_proxy"):
            setattr(bare, name, getattr(own, name))
        bare.api_key = {"authorization": f"Bearer {token}"}
        return Hub(ApiServer(replace(self.address, source="your token"), bare))

    def in_the_name_of(self, user: str, groups: Sequence[str] = ()) -> Hub:
        """The hub, asked with this server's credentials, which may impersonate `user` and `groups`."""
        headers = [("Impersonate-User", user), *(("Impersonate-Group", group) for group in groups)]
        return Hub(ApiServer(self.address, self._configuration, headers))


def _found(kubeconfig: str | Path | None, context: str | None, environment: Mapping[str, str]) -> tuple[Any, Address]:
    """The library's configuration, and the address."""
    files = _files(kubeconfig, environment)
    if files:
        return _from_kubeconfig(files, context, environment)
    if context is None and "KUBERNETES_SERVICE_HOST" in environment:
        return _from_service_account()
    raise TuneyardError("no hub is configured: there is no kubeconfig", _NO_HUB)


def _files(kubeconfig: str | Path | None, environment: Mapping[str, str]) -> list[Path]:
    """The kubeconfig files that exist. Raises BadInput where a named file does not exist."""
    named = str(kubeconfig) if kubeconfig is not None else environment.get("KUBECONFIG", "")
    if named:
        paths = [Path(part).expanduser() for part in named.split(os.pathsep) if part]
        found = [path for path in paths if path.is_file()]
        if not found:
            origin = "--kubeconfig" if kubeconfig is not None else "KUBECONFIG"
            raise BadInput(f"{origin} names {named}, and there is no such file", _NO_HUB)
        return found
    default = Path(environment.get("HOME", "~")).expanduser() / ".kube/config"
    return [default] if default.is_file() else []


def _from_kubeconfig(files: list[Path], context: str | None, environment: Mapping[str, str]) -> tuple[Any, Address]:
    import kubernetes.client
    import kubernetes.config
    import yaml

    paths = os.pathsep.join(map(str, files))
    try:
        contexts, current = kubernetes.config.list_kube_config_contexts(paths)
        names = [str(found["name"]) for found in contexts]
        chosen = _context(context, names, paths) if context is not None else str(current["name"])
        configuration = kubernetes.client.Configuration()
        kubernetes.config.load_kube_config(paths, context=chosen, client_configuration=configuration, persist_config=False)
    except (kubernetes.config.ConfigException, yaml.YAMLError, OSError, KeyError, TypeError, ValueError) as error:
        reason = _line_of(error) if isinstance(error, yaml.YAMLError) else " ".join(str(error).split())[:300]
        raise TuneyardError(f"{paths} is no usable kubeconfig: {reason}", "check it: kubectl config view") from error
    inner = next(found["context"] for found in contexts if found["name"] == chosen)
    # In a pod, the namespace of the pod is the default of a kubeconfig without one, as for kubectl.
    default = _pod_namespace() if "KUBERNETES_SERVICE_HOST" in environment else "default"
    return configuration, Address(str(configuration.host), str(inner.get("namespace") or default), paths)


def _line_of(error: Exception) -> str:
    """The line in which a file is no YAML. The library's own message quotes the line, and may show a token."""
    mark = getattr(error, "problem_mark", None)
    return f"it is no YAML in line {mark.line + 1}" if mark is not None else "it is no YAML"


def _context(context: str, names: list[str], paths: str) -> str:
    if context not in names:
        best = nearest(context, names)
        hint = f"did you mean --context {best}?" if best else f"use one of: {', '.join(names) or 'none is in it'}"
        raise BadInput(f"{paths} has no context {context!r}", hint)
    return context


def _from_service_account() -> tuple[Any, Address]:
    import kubernetes.client
    import kubernetes.config

    configuration = kubernetes.client.Configuration()
    try:
        kubernetes.config.load_incluster_config(client_configuration=configuration)
    except kubernetes.config.ConfigException as error:
        raise TuneyardError(
            f"this pod has no service account to ask the hub with: {error}", "set automountServiceAccountToken: true, or KUBECONFIG"
        ) from error
    return configuration, Address(str(configuration.host), _pod_namespace(), "the pod's service account")


def _pod_namespace() -> str:
    return _POD_NAMESPACE.read_text().strip() if _POD_NAMESPACE.is_file() else "default"


def _flags(kubeconfig: str | Path | None, context: str | None) -> str:
    return (f" --kubeconfig {kubeconfig}" if kubeconfig is not None else "") + (f" --context {context}" if context is not None else "")
