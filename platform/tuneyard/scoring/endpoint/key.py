"""The API key of an endpoint, from an environment variable."""

from __future__ import annotations

from collections.abc import Mapping

from tuneyard.api import BadInput


def key_of(variable: str | None, environment: Mapping[str, str], field: str = "engine.endpoint") -> str | None:
    """The API key in `environment`; None: none is asked for. Raises BadInput if it is missing, or cannot stand in a header."""
    if variable is None:
        return None
    key = environment.get(variable, "").strip()
    if not key:
        raise BadInput(
            f"the environment variable {variable} of {field}.apiKeyVariable is not set",
            f"give it to the job in spec.env: {{name: {variable}, valueFrom: {{secretKeyRef: {{name: SECRET, key: {variable}}}}}}}; "
            "a local run takes it from your environment",
        )
    if not key.isascii() or not key.isprintable():
        raise BadInput(f"the value of {variable} is no API key: it has characters that no header can hold", "export the key alone")
    return key
