"""What every kind shares: strict fields in camelCase, object metadata, references to secrets."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic.alias_generators import to_camel

API_VERSION = "tuneyard.dev/v1alpha1"
DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
Name = Annotated[str, StringConstraints(pattern=DNS_LABEL, max_length=63)]


class Fields(BaseModel):
    """A group of fields: camelCase in YAML, snake_case in Python; unknown names are refused."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        validate_default=True,
        allow_inf_nan=False,  # JSON, and so an API server, has neither
    )

    def to_yaml_dict(self) -> dict[str, Any]:
        """The object as YAML would hold it: camelCase names, nothing that was left to its default."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


class Metadata(Fields):
    """Kubernetes object metadata, as much of it as Tuneyard reads."""

    model_config = ConfigDict(extra="ignore")

    name: Name = Field(description="unique within the namespace; lower-case letters, digits and '-'")
    namespace: Name = Field(default="default", description="also the default team")
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


class Resource(Fields):
    """A Kubernetes object of the group tuneyard.dev."""

    api_version: Literal["tuneyard.dev/v1alpha1"] = Field(default="tuneyard.dev/v1alpha1")
    metadata: Metadata


class KeyRef(Fields):
    """One key of a Secret. Its value never reaches a status, log, event, history row or artifact."""

    name: str = Field(min_length=1, description="name of the Secret; for local runs only `key` is looked up, in the environment")
    key: str = Field(min_length=1)
    optional: bool = False


class ValueFrom(Fields):
    secret_key_ref: KeyRef


class EnvVar(Fields):
    """One environment variable of every container of the job."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    value: str | None = None
    value_from: ValueFrom | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.value is None) == (self.value_from is None):
            raise ValueError("give exactly one of value and valueFrom")
        return self


def is_dns_label(text: str) -> bool:
    """True if `text` can name a Kubernetes object."""
    return len(text) <= 63 and re.match(DNS_LABEL, text) is not None
