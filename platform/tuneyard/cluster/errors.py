"""What the hub's API server answers when it does not do what was asked, as errors for people.

An API server tells many things apart in words only (a missing object, a missing kind, a missing namespace are all 404): this is the one
place that reads those words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuneyard.api import BadInput, FailureKind, StorageError, TuneyardError
from tuneyard.cluster.connection import Address
from tuneyard.cluster.log_api import STORAGE_FAILED, STORAGE_NOT_READABLE
from tuneyard.cluster.request import Request

_CANNOT = re.compile(r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]*)"')
_UNKNOWN_FIELD = re.compile(r'unknown field "([^"]+)"')
_NAMESPACE = re.compile(r'namespaces "([^"]+)" not found')
_DENIED = re.compile(r'admission webhook "(?P<webhook>[^"]+)" denied the request: (?P<reason>.*)', re.DOTALL)

_WORDS = (
    (re.compile(r'^Invalid value: "\w+": \S+ in body must be of type (\w+): "(\w+)"$'), r"must be of type \1; found \2"),
    (re.compile(r"^Invalid value: (.*?): \S+ in body (.+)$"), r"\2; found \1"),
    (re.compile(r'^Invalid value: "(?:object|array|null)": (.+)$'), r"\1"),
    (re.compile(r'^Invalid value: (".*?"): (.+)$'), r"\2; found \1"),
    (re.compile(r"^Invalid value: (.+)$"), r"\1"),
    (re.compile(r"^Unsupported value: (.*?): supported values: (.+)$"), r"\1 is none of: \2"),
    (re.compile(r"^Duplicate value: (.+)$"), r"stands there twice: \1"),
    (re.compile(r"^Required value$"), "required field is missing"),
)


class HubError(TuneyardError):
    """The hub cannot be asked: who asks again later may be answered."""

    default_kind = FailureKind.NETWORK


class Unreachable(HubError):
    """The hub did not answer, or said that it cannot just now."""


class NotInstalled(HubError):
    """The API server does not know Tuneyard's kinds (yet: one that starts serves them a moment after the rest)."""


class NotAllowed(HubError):
    """The hub does not know who asks, or does not let them."""


class NotReadable(HubError):
    """The hub has no way to a job's storage."""


class Missing(BadInput):
    """There is no object of this name."""


class Taken(BadInput):
    """There is an object of this name already."""


class Overtaken(HubError):
    """The object has changed since it was read."""


@dataclass(frozen=True)
class Problem:
    """One thing that the hub refuses; `path` as in `spec.tasks[0].name`, empty where it is about the whole object."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else self.reason


class Refused(BadInput):
    """Admission refused the object."""

    def __init__(self, cause: str, next_step: str, problems: tuple[Problem, ...]) -> None:
        super().__init__(cause, next_step)
        self.problems = problems

    def __reduce__(self) -> tuple[object, ...]:
        return Refused, (self.cause, self.next_step, self.problems)


def error_of(code: int, text: str, request: Request, address: Address) -> TuneyardError:
    """The error that an HTTP answer of `code` (400 and above) with this body means."""
    status = _status(text)
    message = str(status.get("message", "")) or " ".join(text.split())[:300]
    if (storage := _storage(status, message)) is not None:
        return storage
    if code == 401:
        return _unauthenticated(address)
    if code == 403:
        return _forbidden(message, request, address)
    if code == 404:
        return _not_found(status, message, request, address)
    if code == 409:
        if status.get("reason") == "AlreadyExists":
            return Taken(f"{request.what} exists already", f"tuneyard status {request.name}")
        return Overtaken(f"{request.what} was changed by someone else at the same moment", "try again")
    if code in (400, 422):
        return _refused(status, message)
    if code == 413:
        return BadInput("the object is too large for the hub (about 1.5 MB)", "move lists and prompts into files in storage")
    return Unreachable(f"{address.hub} cannot answer just now: {code} {message}", "try again in a minute")


def _unauthenticated(address: Address) -> NotAllowed:
    return NotAllowed(
        f"{address.hub} does not accept your credentials: they are missing, wrong or expired",
        f"log in again so that {address.source} holds fresh ones, then check: kubectl auth whoami{address.flags}",
    )


def _forbidden(message: str, request: Request, address: Address) -> TuneyardError:
    cannot = _CANNOT.search(message)
    if cannot is None:
        denied = _DENIED.search(message)
        reason = denied["reason"].strip() if denied else message.rpartition("forbidden: ")[2]
        return Refused(reason, "change the file as the hub's administrators ask", (Problem("", reason),))
    if cannot["user"] == "system:anonymous":
        return _unauthenticated(address)
    where = f" in namespace {request.namespace}" if request.namespace else ""
    flag = f" -n {request.namespace}" if request.namespace else " --all-namespaces" if request.namespaced else ""
    resource, _, subresource = cannot["resource"].partition("/")
    kind = f"{resource}.{request.group}" if request.group else resource
    right = f"{cannot['resource']} of {request.group}, which the role `view` has" if subresource else kind
    checked = f"{kind} --subresource={subresource}" if subresource else kind
    return NotAllowed(
        f"{cannot['user']} may not {cannot['verb']} {cannot['resource']}{where} of {address.hub}",
        f"ask its administrators for the verb {cannot['verb']!r} on {right}; check: kubectl auth can-i {cannot['verb']} {checked}{flag}",
    )


def _storage(status: Mapping[str, Any], message: str) -> TuneyardError | None:
    """What the hub's API of logs says of a job's storage; None for every other answer."""
    for cause in (status.get("details") or {}).get("causes") or []:
        if cause.get("reason") == STORAGE_NOT_READABLE:
            return NotReadable(message, str(cause.get("message", "")))
        if cause.get("reason") == STORAGE_FAILED:
            return StorageError(message, str(cause.get("message", "")))
    return None


def _not_found(status: Mapping[str, Any], message: str, request: Request, address: Address) -> TuneyardError:
    namespace = _NAMESPACE.search(message)
    if namespace is not None:
        return BadInput(
            f"{address.hub} has no namespace {namespace[1]!r}", f"choose another with -n, or: kubectl create namespace {namespace[1]}"
        )
    if not (status.get("details") or {}).get("name"):
        # A kind that is not served is answered by the router, in plain text.
        return NotInstalled(
            f"{address.hub} knows no {request.resource}: Tuneyard is not installed on it",
            "choose the hub with --context, or install the chart: helm install tuneyard-hub charts/tuneyard-hub (docs/install.md)",
        )
    return Missing(f"{address.hub} has no {request.what}", "")


def _refused(status: Mapping[str, Any], message: str) -> Refused:
    causes = (status.get("details") or {}).get("causes") or []
    problems = [Problem(_path(cause.get("field")), _reason(str(cause.get("message", "")))) for cause in causes]
    if not problems:
        problems = [Problem(field, "the hub does not know this field") for field in _UNKNOWN_FIELD.findall(message)]
        if problems:
            cause = "\n".join(map(str, problems))
            return Refused(cause, "the hub's CRDs are older than this tuneyard: upgrade the chart, or leave the field out", tuple(problems))
    # The rules in CEL run only where the schema holds; where it does not, API servers add this line, which nobody can act on.
    problems = list(dict.fromkeys(p for p in problems if "some validation rules were not checked" not in p.reason)) or [
        Problem("", _reason(message))
    ]
    return Refused("\n".join(map(str, problems)), "correct the file, then submit it again", tuple(problems))


def _reason(message: str) -> str:
    """API servers put the kind of complaint and the path (again) around what helps: `Invalid value: 0: spec.x in body should be …`."""
    text = " ".join(message.split())
    for pattern, replacement in _WORDS:
        text, found = pattern.subn(replacement, text)
        if found:
            break
    return text


def _path(field: object) -> str:
    return "" if field in (None, "<nil>") else str(field)


def _status(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
