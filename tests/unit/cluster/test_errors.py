"""What an API server's refusals are in words that a person can act on. The answers are those of Kubernetes 1.36."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from tuneyard.api import TuneyardError
from tuneyard.cluster.address import Address
from tuneyard.cluster.errors import Missing, NotAllowed, NotInstalled, NotLoggedIn, Overtaken, Problem, Refused, Taken, Unreachable, explain
from tuneyard.kubernetes import Request, create_object, get_object
from tuneyard.kubernetes import error_of as api_error
from tuneyard.kubernetes.kinds import JOBSPEC

HUB = Address("https://hub:6443", "maps", "/home/a/.kube/config")
GET = get_object(JOBSPEC, "maps", "support-bot")
CREATE = create_object(JOBSPEC, "maps", {"metadata": {"name": "support-bot"}})


def error_of(code: int, text: str, request: Request, address: Address) -> TuneyardError:
    return explain(api_error(code, text.encode()), request, address)


def answer(message: str, **details: Any) -> str:
    reason = details.pop("reason", "")
    return json.dumps({"kind": "Status", "message": message, "reason": reason, "details": details})


def cannot(verb: str, user: str = "ada") -> str:
    what = f'cannot {verb} resource "jobspecs" in API group "tuneyard.dev" in the namespace "maps"'
    return answer(f'jobspecs.tuneyard.dev is forbidden: User "{user}" {what}')


@pytest.mark.parametrize(
    ("code", "text", "kind", "cause", "next_step"),
    [
        (401, answer("Unauthorized"), NotLoggedIn, "does not accept your credentials", "/home/a/.kube/config holds fresh ones"),
        (
            403,
            cannot("get"),
            NotAllowed,
            "ada may not get jobspecs in namespace maps",
            "kubectl auth can-i get jobspecs.tuneyard.dev -n maps",
        ),
        (403, cannot("get", "system:anonymous"), NotLoggedIn, "does not accept your credentials", "log in again"),
        (
            403,
            answer('admission webhook "q.x" denied the request: team maps has no quota'),
            Refused,
            "team maps has no quota",
            "administrators",
        ),
        (403, answer('jobspecs "a" is forbidden: exceeded quota: jobs'), Refused, "exceeded quota: jobs", "administrators"),
        (404, "404 page not found\n", NotInstalled, "Tuneyard is not installed on it", "helm install"),
        (404, answer('namespaces "maps" not found', name="maps"), None, "no namespace 'maps'", "kubectl create namespace maps"),
        (404, answer('jobspecs "support-bot" not found', name="support-bot"), Missing, "has no JobSpec maps/support-bot", ""),
        (409, answer("exists", reason="AlreadyExists"), Taken, "JobSpec maps/support-bot exists already", "tuneyard status"),
        (409, answer("the object has been modified", reason="Conflict"), Overtaken, "was changed by someone else", "try again"),
        (413, "Request entity too large", None, "too large for the hub (about 1.5 MB)", "files in storage"),
        (410, answer("too old resource version", reason="Expired"), Unreachable, "cannot answer just now: 410: too old", "try again"),
        (500, answer("etcdserver: request timed out"), Unreachable, "cannot answer just now: 500: etcdserver", "try again"),
        (503, "upstream connect error", Unreachable, "cannot answer just now: 503: upstream connect error", "try again"),
    ],
)
def test_each_answer_has_its_error(code: int, text: str, kind: type | None, cause: str, next_step: str) -> None:
    error = error_of(code, text, GET, HUB)
    assert kind is None or type(error) is kind
    assert cause in error.cause
    assert next_step in error.next_step


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("Invalid value: 0: spec.a in body should be greater than or equal to 1", "should be greater than or equal to 1; found 0"),
        ('Invalid value: "string": spec.a in body must be of type integer: "string"', "must be of type integer; found string"),
        ('Invalid value: "object": give exactly one of a, b', "give exactly one of a, b"),
        ("Invalid value: give exactly one of a, b", "give exactly one of a, b"),
        ('Unsupported value: "sftt": supported values: "sft", "clm"', '"sftt" is none of: "sft", "clm"'),
        ("Required value", "required field is missing"),
        ('Duplicate value: {"name":"tune"}', 'stands there twice: {"name":"tune"}'),
        ("team maps has no quota", "team maps has no quota"),
    ],
)
def test_reasons_of_admission_in_plain_words(message: str, reason: str) -> None:
    error = error_of(422, answer("invalid", causes=[{"field": "spec.a", "message": message}]), CREATE, HUB)
    assert isinstance(error, Refused)
    assert error.problems == (Problem("spec.a", reason),)
    assert error.exit_code == 2


def test_the_remark_that_rules_were_not_checked_is_left_out() -> None:
    causes = [
        {"field": "spec.a", "message": "Required value"},
        {"field": "<nil>", "message": "Invalid value: null: some validation rules were not checked because the object was invalid"},
    ]
    error = error_of(422, answer("invalid", causes=causes), CREATE, HUB)
    assert error.cause == "spec.a: required field is missing"


def test_a_field_that_an_older_hub_does_not_know() -> None:
    text = answer(
        'JobSpec in version "v1alpha1" cannot be handled as a JobSpec: strict decoding error: unknown field "spec.tasks[0].fresh"'
    )
    error = error_of(400, text, CREATE, HUB)
    assert error.cause == "spec.tasks[0].fresh: the hub does not know this field"
    assert "upgrade the chart" in error.next_step


def test_refusals_survive_a_process_border() -> None:
    error = error_of(422, answer("invalid", causes=[{"field": "spec.a", "message": "Required value"}]), CREATE, HUB)
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, Refused)
    assert str(again) == str(error)
    assert again.problems == (Problem("spec.a", "required field is missing"),)
