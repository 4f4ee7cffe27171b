"""Base classes of all kinds: strict fields in camelCase, object metadata, references to secrets."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, StringConstraints, field_validator, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, PydanticCustomError

from tuneyard.api.limits import LONGEST_MESSAGE, LONGEST_TEXT, limited

API_VERSION = "tuneyard.dev/v1alpha1"
LOCATED = "located"
DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
NAME_DESCRIPTION = "unique within the namespace; lower-case letters, digits and '-'"
RAY_TOKEN_VARIABLES = ("RAY_AUTH_", "RAY_ENABLE_K8S_TOKEN_AUTH")
"""Prefixes of the variables that configure Ray's token authentication."""
Name = Annotated[str, StringConstraints(pattern=DNS_LABEL, max_length=63)]


class Fields(BaseModel):
    """A group of fields: camelCase in YAML, snake_case in Python. Unknown names, and values that no object can hold (`limits`), are
    refused.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        validate_default=True,
        allow_inf_nan=False,  # JSON, and thus an API server, has neither
    )

    longest_text: ClassVar[int] = LONGEST_TEXT

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return cls._with_limits(handler(source))

    @classmethod
    def _with_limits(cls, schema: CoreSchema) -> CoreSchema:
        limits: CoreSchema = limited(schema, cls, cls.longest_text)
        return limits

    def to_yaml_dict(self) -> dict[str, Any]:
        """The object as in YAML: camelCase names, without fields at their default."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


class StatusFields(Fields):
    """A group of fields that programs write, in a status or a report. Unknown fields of a newer version are kept and written back.

    `vital`: paths of fields, such as `attempts.*.token`, that decisions depend on. An object with an unreadable vital field is left alone
    (`wire`).
    """

    model_config = ConfigDict(extra="allow")

    vital: ClassVar[frozenset[str]] = frozenset()
    longest_text: ClassVar[int] = LONGEST_MESSAGE


class Metadata(Fields):
    """The part of Kubernetes object metadata that Tuneyard reads."""

    model_config = ConfigDict(extra="ignore")

    @classmethod
    def _with_limits(cls, schema: CoreSchema) -> CoreSchema:
        return schema  # API servers have their own limits for metadata

    name: Name = Field(description=NAME_DESCRIPTION)
    namespace: Name = Field(default="default", description="also the default team")
    labels: dict[str, str] = Field(default_factory=dict, description="Kubernetes labels, for selecting objects")
    annotations: dict[str, str] = Field(
        default_factory=dict, description="Kubernetes annotations; `tuneyard.dev/user` names who submitted a job, for usage by user"
    )


class Resource(Fields):
    """A Kubernetes object of the group tuneyard.dev."""

    api_version: Literal["tuneyard.dev/v1alpha1"] = Field(default="tuneyard.dev/v1alpha1", description="group and version of the API")
    metadata: Metadata = Field(description="name, namespace, labels and annotations of the object")


class KeyRef(Fields):
    """One key of a Secret. Its value never reaches a status, log, event, history row or artifact."""

    name: str = Field(
        pattern=DNS_SUBDOMAIN, max_length=253, description="name of the Secret; for local runs only `key` is looked up, in the environment"
    )
    key: str = Field(pattern=r"^[-._a-zA-Z0-9]+$", max_length=253, description="key inside the Secret")
    optional: bool = Field(default=False, description="start without the variable if the Secret or the key does not exist")


class ValueFrom(Fields):
    """Source of the value of a variable."""

    secret_key_ref: KeyRef


class EnvVar(Fields):
    """One environment variable of every container of the job."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = Field(description="name of the variable")
    value: str | None = Field(default=None, description="the value as text; default: taken from valueFrom")
    value_from: ValueFrom | None = Field(default=None, description="the Secret that holds the value; exactly one of value and valueFrom")

    @field_validator("name")
    @classmethod
    def _leaves_rays_token_alone(cls, name: str) -> str:
        """KubeRay keeps a container's own setting of these variables, and Ray would then accept requests without a token."""
        if name.startswith(RAY_TOKEN_VARIABLES):
            raise ValueError("an attempt's Ray has its own token: leave this variable out")
        return name

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.value is None) == (self.value_from is None):
            raise ValueError("give exactly one of value and valueFrom")
        return self


def located(reason: str, *path: str | int) -> PydanticCustomError:
    """The error of a validator that sees a whole group and knows the wrong field below it. `path` starts at the group."""
    return PydanticCustomError(LOCATED, "{reason}", {"reason": reason, "path": path})


def is_dns_label(text: str) -> bool:
    """True if `text` can name a Kubernetes object."""
    return len(text) <= 63 and re.fullmatch(DNS_LABEL, text) is not None
