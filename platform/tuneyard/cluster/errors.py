"""Refusals of the hub's API server as errors for people.

`tuneyard.kubernetes` distinguishes answers by status and reason. Some answers differ only in their message: a missing right and a denial of
admission are both 403, a missing object and a missing namespace are both 404. Only this module reads messages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tuneyard.api import BadInput, FailureKind, StorageError, TuneyardError
from tuneyard.cluster.address import Address
from tuneyard.cluster.log_api import STORAGE_FAILED, STORAGE_NOT_READABLE
from tuneyard.kubernetes import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, NotServed, Request, TooLarge, Unauthenticated
from tuneyard.kubernetes import Missing as NoSuchObject

_CANNOT = re.compile(r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]*)"')
_UNKNOWN_FIELD = re.compile(r'unknown field "([^"]+)"')
_NAMESPACE = re.compile(r'namespaces "([^"]+)" not found')
_LATER = "try again in a minute"
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
    """The hub cannot be asked now; a later request may succeed."""

    default_kind = FailureKind.NETWORK


class Unreachable(HubError):
    """The hub did not answer, or cannot answer now."""


class NotInstalled(HubError):
    """The API server does not know Tuneyard's kinds. A starting API server serves them a moment after its own."""


class NotAllowed(HubError):
    """The hub does not know the user, or the user lacks a right."""


class NotLoggedIn(NotAllowed):
    """The hub does not accept the user's credentials: they are missing, wrong or expired."""


class NotReadable(HubError):
    """The hub has no way to a job's storage."""


class Missing(BadInput):
    """There is no object of this name."""


class Taken(BadInput):
    """An object of this name exists already."""


class Overtaken(HubError):
    """The object has changed since it was read."""


@dataclass(frozen=True)
class Problem:
    """One problem that the hub refuses. `path`: as in `spec.tasks[0].name`; empty for a problem of the whole object."""

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


def explain(error: ApiError, request: Request, address: Address) -> TuneyardError:
    """The error for people from an API server's answer to `request`."""
    storage = _storage(error)
    if storage is not None:
        return storage
    match error:
        case Unauthenticated():
            return _unauthenticated(address)
        case Forbidden():
            return _forbidden(error.message, request, address)
        case NoSuchObject():
            return _missing(error.message, request, address)
        case NotServed():
            return NotInstalled(
                f"{address.hub} knows no {request.kind.plural}: Tuneyard is not installed on it",
                "choose the hub with --context, or install the chart: helm install tuneyard-hub charts/tuneyard-hub (docs/install.md)",
            )
        case AlreadyExists():
            return Taken(f"{request.label} exists already", f"tuneyard status {request.name}")
        case Conflict():
            return Overtaken(f"{request.label} was changed by someone else at the same moment", error.next_step)
        case TooLarge():
            return BadInput("the object is too large for the hub (about 1.5 MB)", error.next_step)
        case Invalid():
            return _refused(error)
    return Unreachable(f"{address.hub} cannot answer just now: {error}", _LATER)


def _unauthenticated(address: Address) -> NotLoggedIn:
    return NotLoggedIn(
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
    flag = f" -n {request.namespace}" if request.namespace else " --all-namespaces" if request.kind.namespaced else ""
    group = request.kind.group
    resource, _, subresource = cannot["resource"].partition("/")
    kind = f"{resource}.{group}" if group else resource
    right = f"{cannot['resource']} of {group}, which the role `view` has" if subresource else kind
    checked = f"{kind} --subresource={subresource}" if subresource else kind
    return NotAllowed(
        f"{cannot['user']} may not {cannot['verb']} {cannot['resource']}{where} of {address.hub}",
        f"ask its administrators for the verb {cannot['verb']!r} on {right}; check: kubectl auth can-i {cannot['verb']} {checked}{flag}",
    )


def _storage(error: ApiError) -> TuneyardError | None:
    """The error for an answer of the hub's API of logs about a job's storage. None: another answer."""
    for cause in error.causes:
        if cause.reason == STORAGE_NOT_READABLE:
            return NotReadable(error.message, cause.message)
        if cause.reason == STORAGE_FAILED:
            return StorageError(error.message, cause.message)
    return None


def _missing(message: str, request: Request, address: Address) -> TuneyardError:
    namespace = _NAMESPACE.search(message)
    if namespace is not None:
        return BadInput(
            f"{address.hub} has no namespace {namespace[1]!r}", f"choose another with -n, or: kubectl create namespace {namespace[1]}"
        )
    return Missing(f"{address.hub} has no {request.label}", "")


def _refused(error: Invalid) -> Refused:
    problems = [Problem(cause.field, _reason(cause.message)) for cause in error.causes]
    if not problems:
        problems = [Problem(field, "the hub does not know this field") for field in _UNKNOWN_FIELD.findall(error.message)]
        if problems:
            cause = "\n".join(map(str, problems))
            return Refused(cause, "the hub's CRDs are older than this tuneyard: upgrade the chart, or leave the field out", tuple(problems))
    # API servers check the rules in CEL only for objects that fit the schema, and add this line to all others. It is of no use to people.
    problems = list(dict.fromkeys(p for p in problems if "some validation rules were not checked" not in p.reason)) or [
        Problem("", _reason(error.message))
    ]
    return Refused("\n".join(map(str, problems)), "correct the file, then submit it again", tuple(problems))


def _reason(message: str) -> str:
    """The useful part of a message. API servers add the kind of problem, and the path: `Invalid value: 0: spec.x in body should be …`."""
    text = " ".join(message.split())
    for pattern, replacement in _WORDS:
        text, found = pattern.subn(replacement, text)
        if found:
            break
    return text
