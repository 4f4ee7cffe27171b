"""The API of logs: its group, its queries and its answers, for the client and for the hub.

`GET /apis/logs.tuneyard.dev/v1alpha1/namespaces/NAMESPACE/jobspecs/NAME/log` answers a bounded part of the log of one attempt, and a
cursor. The same query with this cursor answers the lines written since. No connection stays open, and the hub keeps no state between
queries.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tuneyard.api import BadInput
from tuneyard.api.loading_reasons import nearest
from tuneyard.kubernetes import Kind

LOG_GROUP, LOG_VERSION = "logs.tuneyard.dev", "v1alpha1"
LOG_API_VERSION = f"{LOG_GROUP}/{LOG_VERSION}"
LOG_KIND = "JobSpecLog"
LOGGED_JOBSPEC = Kind("JobSpec", LOG_API_VERSION, "jobspecs")
"""The kind has only the subresource `log` in this group."""
LARGEST_ANSWER = 1 << 20
"""Bytes of log in one answer."""
MOST_TAIL_LINES = 10_000
MOST_SOURCES = 4096
"""The most sources of one attempt in an answer."""

STORAGE_NOT_READABLE = "StorageNotReadable"
"""Reason of a refusal: the hub has no access to this job's storage. A reader with keys may have access."""
STORAGE_FAILED = "StorageFailed"
"""Reason of a failure: the storage does not answer, or it refuses the job's keys."""

_SOURCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_NUMBER = re.compile(r"[0-9]{1,9}")
_UID = re.compile(r"[0-9A-Za-z-]{1,100}")
_PARAMETERS = ("attempt", "source", "cursor", "tailLines", "limitBytes", "uid", "format")


@dataclass(frozen=True)
class LogQuery:
    """A query about the log of one job."""

    attempt: int | None = None
    """None: the last attempt."""
    sources: tuple[str, ...] = ()
    """Empty: all sources."""
    cursors: Mapping[str, int] = field(default_factory=dict)
    """The number of the last known file, by source."""
    tail_lines: int | None = None
    """The number of last lines of each source, instead of all lines after the cursors."""
    limit_bytes: int = LARGEST_ANSWER
    uid: str = ""
    """The uid of the JobSpec. The answer is 404 if another JobSpec has its name."""
    as_text: bool = False

    def parameters(self) -> dict[str, str]:
        """As parameters of a URL."""
        found = {
            "attempt": str(self.attempt or ""),
            "source": ",".join(self.sources),
            "cursor": cursor_of(self.cursors),
            "tailLines": str(self.tail_lines or ""),
            "limitBytes": "" if self.limit_bytes == LARGEST_ANSWER else str(self.limit_bytes),
            "uid": self.uid,
            "format": "text" if self.as_text else "",
        }
        return {name: value for name, value in found.items() if value}

    @classmethod
    def parse(cls, parameters: Iterable[tuple[str, str]]) -> LogQuery:
        """Raises BadInput, which names the parameter."""
        given: dict[str, str] = {}
        for name, value in parameters:
            if name not in _PARAMETERS:
                best = nearest(name[:50], _PARAMETERS)
                hint = f"did you mean {best}?" if best else f"use: {', '.join(_PARAMETERS)}"
                raise BadInput(f"there is no parameter {name[:50]!r}", hint)
            if name in given:
                raise BadInput(f"the parameter {name} is given twice", "separate several sources by commas: source=rank-0,rank-1")
            given[name] = value
        if given.get("tailLines") and given.get("cursor"):
            raise BadInput("tailLines and cursor are given together", "tailLines shows the end of a log, cursor what follows it")
        if given.get("format", "json") not in ("json", "text"):
            raise BadInput("the parameter format is neither json nor text", "leave it out for json")
        if given.get("uid") and not _UID.fullmatch(given["uid"]):
            raise BadInput("the parameter uid is none", "take it from the JobSpec's metadata.uid")
        return cls(
            attempt=_number("attempt", given, 1, 10**9 - 1),
            sources=tuple(_source(name) for name in given.get("source", "").split(",") if name),
            cursors=cursors_of(given.get("cursor", "")),
            tail_lines=_number("tailLines", given, 1, MOST_TAIL_LINES),
            limit_bytes=LARGEST_ANSWER if (limit := _number("limitBytes", given, 0, LARGEST_ANSWER)) is None else limit,
            uid=given.get("uid", ""),
            as_text=given.get("format") == "text",
        )


@dataclass(frozen=True)
class LogAnswer:
    """A part of the log of one attempt."""

    task: str
    attempt: int
    sources: tuple[str, ...]
    """All sources with output, including sources that the query leaves out."""
    parts: Mapping[str, str]
    """Whole new lines, by source."""
    cursors: Mapping[str, int]
    """The cursors of the next query."""
    more: bool
    """Whether the log has more lines after this answer: the next query can follow at once."""

    def to_json(self, namespace: str, name: str) -> dict[str, Any]:
        return {
            "apiVersion": LOG_API_VERSION,
            "kind": LOG_KIND,
            "metadata": {"name": name, "namespace": namespace},
            "task": self.task,
            "attempt": self.attempt,
            "sources": list(self.sources),
            "parts": [{"source": source, "text": text} for source, text in self.parts.items()],
            "cursor": cursor_of(self.cursors),
            "more": self.more,
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> LogAnswer:
        """Raises ValueError for any other JSON."""
        try:
            return cls(
                task=str(found["task"]),
                attempt=int(found["attempt"]),
                sources=tuple(str(source) for source in found["sources"]),
                parts={str(part["source"]): str(part["text"]) for part in found["parts"]},
                cursors=cursors_of(str(found["cursor"])),
                more=bool(found["more"]),
            )
        except (KeyError, TypeError, ValueError, BadInput) as error:
            raise ValueError(f"no {LOG_KIND}: {type(error).__name__}") from error


def cursor_of(cursors: Mapping[str, int]) -> str:
    """`driver:7,rank-0:3`: the number of the last shown file, by source."""
    return ",".join(f"{source}:{number}" for source, number in cursors.items() if number)


def cursors_of(text: str) -> dict[str, int]:
    """The cursors in a text of `cursor_of`. Raises BadInput for any other text."""
    found: dict[str, int] = {}
    for entry in text.split(",") if text else ():
        source, _, number = entry.rpartition(":")
        if not _NUMBER.fullmatch(number) or len(found) >= MOST_SOURCES:
            raise BadInput("the parameter cursor is not a cursor of this API", "begin without it")
        found[_source(source)] = int(number)
    return found


def is_source(name: str) -> bool:
    """Whether a source may have this name: one part of a path, which does not lead out of its folder."""
    return _SOURCE.fullmatch(name) is not None


def _source(name: str) -> str:
    if not is_source(name):
        raise BadInput(f"{name[:100]!r} is no name of a source", "sources are: driver, process, rank-0, engine-0, …")
    return name


def _number(name: str, given: Mapping[str, str], least: int, most: int) -> int | None:
    text = given.get(name, "")
    if not text:
        return None
    if not _NUMBER.fullmatch(text) or not least <= int(text) <= most:
        raise BadInput(f"the parameter {name} is no whole number from {least} to {most}", "")
    return int(text)
