"""Copies the Secrets that a job names on the hub into one Secret per attempt on the member."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuneyard.api import EnvVar


@dataclass(frozen=True, order=True)
class SecretKey:
    """A key of a Secret in the job's namespace on the hub."""

    name: str
    key: str
    optional: bool = False

    @property
    def copied_key(self) -> str:
        """The key in the attempt's Secret, which holds keys of several Secrets."""
        return f"{self.name}.{self.key}"


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
