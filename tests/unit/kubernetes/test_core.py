"""The Kubernetes API as values: which request is which URL, and what each answer means."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.servers.api_servers import refusal

from tuneyard.api import BadInput
from tuneyard.api.base import is_dns_label
from tuneyard.kubernetes import (
    AlreadyExists,
    ApiError,
    Cause,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    Lines,
    Missing,
    NotServed,
    Request,
    TooLarge,
    TooMany,
    Unauthenticated,
    Unreachable,
    backoff_s,
    create_object,
    delete_object,
    error_of,
    event_of,
    get_object,
    group_path,
    is_newer,
    list_objects,
    over,
    patch_object,
    pause_before,
    replace_object,
    watch_objects,
)
from tuneyard.kubernetes.kinds import ATTEMPT_REPORT, CLUSTER, JOBSPEC, LEASE, POD, TEAM
from tuneyard.kubernetes.names import cut, is_subdomain, shortened

SPECS = "/apis/tuneyard.dev/v1alpha1/namespaces/maps/jobspecs"


@pytest.mark.parametrize(
    ("request_", "method", "target"),
    [
        (get_object(JOBSPEC, "maps", "bot"), "GET", f"{SPECS}/bot"),
        (get_object(JOBSPEC, "maps", "bot", subresource="log", parameters={"format": "text"}), "GET", f"{SPECS}/bot/log?format=text"),
        (get_object(POD, "maps", "a"), "GET", "/api/v1/namespaces/maps/pods/a"),
        (get_object(CLUSTER, None, "lab"), "GET", "/apis/tuneyard.dev/v1alpha1/clusters/lab"),
        (get_object(JOBSPEC, "maps", "../../clusters/x?a#b"), "GET", f"{SPECS}/..%2F..%2Fclusters%2Fx%3Fa%23b"),
        (list_objects(JOBSPEC), "GET", "/apis/tuneyard.dev/v1alpha1/jobspecs"),
        (list_objects(JOBSPEC, "maps", limit=500, token="t/="), "GET", f"{SPECS}?limit=500&continue=t%2F%3D"),
        (list_objects(POD, labels="!tuneyard.dev/job"), "GET", "/api/v1/pods?labelSelector=%21tuneyard.dev%2Fjob"),
        (
            list_objects(JOBSPEC, fields={"metadata.name": "a,metadata.namespace=b"}),
            "GET",
            "/apis/tuneyard.dev/v1alpha1/jobspecs?fieldSelector=metadata.name%3Da%5C%2Cmetadata.namespace%5C%3Db",
        ),
        (
            watch_objects(JOBSPEC, "maps", since="7", timeout_s=0.2),
            "GET",
            f"{SPECS}?watch=1&resourceVersion=7&allowWatchBookmarks=true&timeoutSeconds=1",
        ),
        (create_object(JOBSPEC, "maps", {"metadata": {"name": "bot"}}, dry_run=True), "POST", f"{SPECS}?dryRun=All"),
        (replace_object(LEASE, "maps", "hub", {}), "PUT", "/apis/coordination.k8s.io/v1/namespaces/maps/leases/hub"),
        (patch_object(TEAM, None, "a", {}, subresource="status"), "PATCH", "/apis/tuneyard.dev/v1alpha1/teams/a/status"),
        (patch_object(JOBSPEC, "maps", "bot", {}, strict=True), "PATCH", f"{SPECS}/bot?fieldValidation=Strict"),
        (delete_object(JOBSPEC, "maps", "bot"), "DELETE", f"{SPECS}/bot?propagationPolicy=Background"),
    ],
)
def test_each_request_has_its_target(request_: Request, method: str, target: str) -> None:
    assert (request_.method, request_.target) == (method, target)


def test_bodies_name_their_kind_and_their_type() -> None:
    made = create_object(ATTEMPT_REPORT, "maps", {"metadata": {"name": "a"}}, metadata_only=True)
    assert made.body == {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "AttemptReport", "metadata": {"name": "a"}}
    assert made.headers["Content-Type"] == "application/json"
    assert made.headers["Accept"].startswith("application/json;as=PartialObjectMetadata;")
    assert patch_object(TEAM, None, "a", {}).headers["Content-Type"] == "application/merge-patch+json"
    assert get_object(TEAM, None, "a").headers == {"Accept": "application/json"}


def test_resources_and_objects_have_names_for_metrics_and_for_people() -> None:
    patch = patch_object(JOBSPEC, "maps", "bot", {}, subresource="status")
    assert (patch.resource, patch.label) == ("jobspecs/status", "JobSpec maps/bot")
    assert (list_objects(POD).resource, get_object(TEAM, None, "a").label) == ("pods", "Team a")
    assert (JOBSPEC.qualified, POD.qualified) == ("jobspecs.tuneyard.dev", "pods")
    assert group_path("logs.tuneyard.dev") == "/apis/logs.tuneyard.dev"


@pytest.mark.parametrize(
    ("code", "reason", "details", "kind"),
    [
        (400, "BadRequest", {}, Invalid),
        (401, "Unauthorized", {}, Unauthenticated),
        (403, "Forbidden", {}, Forbidden),
        (404, "NotFound", {"name": "bot", "kind": "jobspecs"}, Missing),
        (404, "NotFound", {}, NotServed),
        (405, "MethodNotAllowed", {}, ApiError),
        (408, "", {}, Unreachable),
        (409, "AlreadyExists", {"name": "bot"}, AlreadyExists),
        (409, "Conflict", {"name": "bot"}, Conflict),
        (410, "Expired", {}, Expired),
        (410, "Gone", {}, Expired),
        (413, "RequestEntityTooLarge", {}, TooLarge),
        (415, "UnsupportedMediaType", {}, ApiError),
        (422, "Invalid", {"name": "bot"}, Invalid),
        (429, "TooManyRequests", {}, TooMany),
        (500, "InternalError", {}, Unreachable),
        (503, "ServiceUnavailable", {}, Unreachable),
        (504, "Timeout", {}, Unreachable),
    ],
)
def test_each_answer_has_its_error(code: int, reason: str, details: dict[str, Any], kind: type[ApiError]) -> None:
    error = error_of(code, refusal(code, reason, "in its own words", **details).data)
    assert type(error) is kind
    assert (error.status, error.reason, error.message) == (code, reason, "in its own words")
    assert str(error) == f"{code}: in its own words"
    assert error.next_step


def test_subclasses_say_what_to_do_alike() -> None:
    assert issubclass(TooMany, Unreachable)
    assert issubclass(Unauthenticated, Forbidden)
    assert issubclass(AlreadyExists, Conflict)
    assert issubclass(TooLarge, Invalid)
    assert not issubclass(NotServed, Missing)


@pytest.mark.parametrize(
    "body", [b"", b"404 page not found\n", b"<html>", b"[]", b"\xff\xfe", b"null", b'{"message": 3, "details": []}', b"[" * 10**5]
)
def test_an_answer_that_is_no_status_is_an_error_too(body: bytes) -> None:
    error = error_of(404, body)
    assert type(error) is NotServed
    assert 0 < len(error.message) <= 500
    assert error.causes == ()


def test_causes_of_admission() -> None:
    causes = [{"field": "spec.a", "reason": "FieldValueRequired", "message": "Required value"}, {"field": "<nil>"}, "strange"]
    error = error_of(422, refusal(422, "Invalid", causes=causes).data)
    assert error.causes == (Cause("spec.a", "FieldValueRequired", "Required value"), Cause("", "", ""))


@pytest.mark.parametrize(
    ("header", "details", "seconds"),
    [
        ("3", {}, 3.0),
        (None, {"retryAfterSeconds": 5}, 5.0),
        ("3", {"retryAfterSeconds": 5}, 3.0),
        (None, {}, None),
        ("", {}, None),
        ("0", {}, None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", {}, 1.0),
        ("-1", {}, 1.0),
        ("9" * 30, {}, 1.0),
        ("²", {}, 1.0),
    ],
)
def test_the_time_of_the_next_try(header: str | None, details: dict[str, Any], seconds: float | None) -> None:
    assert error_of(429, refusal(429, **details).data, header).retry_after_s == seconds


@pytest.mark.parametrize(
    ("code", "retry_after", "pauses"),
    [
        (429, None, [1.0, 1.0, 1.0, None]),
        (429, "2", [2.0, 2.0, 2.0, None]),
        (429, "3600", [10.0, 10.0, 10.0, None]),
        (503, "1", [1.0, 1.0, 1.0, None]),
        (503, None, [None]),
        (500, None, [None]),
        (409, "1", [None]),
        (404, "1", [None]),
    ],
)
def test_what_is_sent_again(code: int, retry_after: str | None, pauses: list[float | None]) -> None:
    error = error_of(code, b"{}", retry_after)
    assert [pause_before(tries, error) for tries in range(1, len(pauses) + 1)] == pauses


def test_no_answer_at_all_is_the_callers_to_repeat() -> None:
    assert pause_before(1, Unreachable(0, "connection refused")) is None


@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")), max_size=8), st.data())
def test_lines_come_whole_however_the_stream_is_cut(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    reader = Lines()
    found = [line for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True) for line in reader.feed(stream[start:end])]
    assert found == lines


def test_a_line_without_an_end_is_refused() -> None:
    reader = Lines()
    assert reader.feed(b"x" * 2**22) == []
    with pytest.raises(ValueError, match="longer than"):
        reader.feed(b"x")


def test_events_and_their_errors() -> None:
    item = {"metadata": {"resourceVersion": "7"}}
    assert event_of({"type": "BOOKMARK", "object": item}) == ("BOOKMARK", item)
    with pytest.raises(Expired, match="too old"):
        event_of({"type": "ERROR", "object": json.loads(refusal(410, "Expired", "too old resource version").data)})
    with pytest.raises(Forbidden):
        event_of({"type": "ERROR", "object": {"code": 403, "message": "no"}})
    with pytest.raises(Unreachable):
        event_of({"type": "ERROR", "object": {}})


def test_a_patch_of_one_version_alone() -> None:
    item = {"metadata": {"name": "a", "resourceVersion": "7"}, "spec": {}}
    assert over(item, {"status": {"phase": "Running"}}) == {"metadata": {"resourceVersion": "7"}, "status": {"phase": "Running"}}
    assert over(item, {"metadata": {"finalizers": []}}) == {"metadata": {"resourceVersion": "7", "finalizers": []}}


def test_versions_are_numbers() -> None:
    def item(version: str) -> dict[str, Any]:
        return {"metadata": {"resourceVersion": version}}

    assert is_newer(item("10"), item("9"))
    assert not is_newer(item("9"), item("9"))
    assert is_newer(item("1"), item("strange"))


@pytest.mark.parametrize(
    ("text", "label", "subdomain"),
    [
        ("a", True, True),
        ("a-b.c", False, True),
        ("a" * 63, True, True),
        ("a" * 64, False, True),  # Kubernetes limits the whole subdomain alone
        ("a." * 126 + "a", False, True),
        ("a." * 127 + "a", False, False),
        ("", False, False),
        ("-a", False, False),
        ("a-", False, False),
        ("A", False, False),
        ("a..b", False, False),
        ("a.-b", False, False),
        ("a\n", False, False),
        ("ä", False, False),
    ],
)
def test_names_of_kubernetes(text: str, label: bool, subdomain: bool) -> None:
    assert (is_dns_label(text), is_subdomain(text)) == (label, subdomain)


@given(st.from_regex(re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII), fullmatch=True))
def test_a_shortened_name_is_a_name(name: str) -> None:
    short = shortened(name, 48)
    assert is_dns_label(short)
    assert len(short) <= 48
    assert (short == name) == (len(name) <= 48)
    assert is_dns_label(cut(name, 18))


def test_names_of_one_start_stay_apart() -> None:
    start = "a-schedule-with-a-name-that-says-all-that-there-is-to-say"
    assert shortened(f"{start}-1", 48) != shortened(f"{start}-2", 48)


@pytest.mark.parametrize(("failures", "seconds"), [(0, 0.5), (1, 0.5), (2, 1.0), (4, 4.0), (20, 30.0), (5_000, 30.0)])
def test_pauses_double_for_any_number_of_failures(failures: int, seconds: float) -> None:
    """A member that was away for 8.5 hours had failed 1,025 times, and two to that power is no float."""
    assert backoff_s(0.5, failures, 30.0) == seconds


@pytest.mark.parametrize(
    "line", [{"object": {}}, {"type": "ADDED"}, [1], None, {"type": "ERROR", "object": None}, {"type": None, "object": {}}]
)
def test_what_is_no_event_is_refused(line: Any) -> None:
    with pytest.raises(ValueError, match="no event"):
        event_of(line)


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    """`DELETE …/pods/` deletes all of them."""
    with pytest.raises(BadInput, match="is not the name of a Pod"):
        assert delete_object(POD, "ns", name).target
