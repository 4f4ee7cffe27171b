"""Moments in Kubernetes' format: RFC 3339, within the years 1970 to 2999."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, WithJsonSchema

_TIME = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?"
_RFC_3339 = rf"(19[7-9][0-9]|2[0-9]{{3}})-[0-9]{{2}}-[0-9]{{2}}T{_TIME}(Z|[+-][0-9]{{2}}:[0-9]{{2}})"


def moment_of(text: str) -> datetime:
    """The moment of an RFC 3339 text. Raises ValueError on anything else, and on years before 1970 or after 2999."""
    if not re.fullmatch(_RFC_3339, text):
        raise ValueError(f"{text[:40]!r} is not a time: write it like 2026-11-22T18:30:00Z")
    return datetime.fromisoformat(text).astimezone(UTC)


def written(moment: datetime) -> str:
    """A moment as RFC 3339 in UTC, to the second: the format of Kubernetes."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def written_ms(moment: datetime) -> str:
    """A moment as RFC 3339 in UTC, to the millisecond."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _checked(text: str) -> str:
    moment_of(text)
    return text


def _checked_unless_empty(text: str) -> str:
    return _checked(text) if text else text


def _schema(pattern: str) -> Any:
    return WithJsonSchema({"type": "string", "pattern": pattern, "maxLength": 40})


Moment = Annotated[str, AfterValidator(_checked), _schema(f"^{_RFC_3339}$")]
MomentOrEmpty = Annotated[str, AfterValidator(_checked_unless_empty), _schema(f"^({_RFC_3339})?$")]
