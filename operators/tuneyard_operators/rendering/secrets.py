"""Copies the Secrets that a job names on the hub into one Secret per attempt on the member."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuneyard.api import EnvVar
from tuneyard.kubernetes.names import shortened

_LONGEST_KEY = 253
"""Of a Secret's data."""


@dataclass(frozen=True, order=True)
class SecretKey:
    """A key of a Secret in the job's namespace on the hub."""

    name: str
    key: str
    optional: bool = False

    @property
    def copied_key(self) -> str:
        """The key in the attempt's Secret, which holds keys of several Secrets. No name of a Secret has a `_`, so it ends the name."""
        return shortened(f"{self.name}_{self.key}", _LONGEST_KEY)


def needed_secrets(env: Sequence[EnvVar]) -> list[SecretKey]:
    """The Secret keys that the job's environment refers to, without duplicates."""
    references = [variable.value_from.secret_key_ref for variable in env if variable.value_from is not None]
    return sorted({SecretKey(reference.name, reference.key, reference.optional) for reference in references})


def secret(name: str, labels: Mapping[str, str], values: Mapping[SecretKey, bytes]) -> dict[str, Any]:
    """The attempt's Secret, which is deleted with its RayJob."""
    return {
        "metadata": {"name": name, "labels": dict(labels)},
        "type": "Opaque",
        "data": {key.copied_key: base64.b64encode(value).decode() for key, value in sorted(values.items())},
    }
