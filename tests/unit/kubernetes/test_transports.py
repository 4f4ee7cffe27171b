"""The three transports judge the same answers alike: the hub's (asyncio), the client's and the pod's, against one server."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import kubernetes.client
import pytest
from kubernetes_asyncio import client as asyncio_client
from tests.servers.api_servers import Answer, ScriptedServer, refusal, scripted

from tuneyard.api import TuneyardError
from tuneyard.api.attempt_report import AttemptState
from tuneyard.cluster import Hub
from tuneyard.cluster.address import Address
from tuneyard.cluster.api_server import ApiServer
from tuneyard.cluster.errors import Missing, NotInstalled, Overtaken, Refused, Unreachable
from tuneyard.kubernetes import ApiError, Expired, Request, get_object, list_objects, patch_object, watch_objects
from tuneyard.kubernetes import Missing as NoSuchObject
from tuneyard.kubernetes import NotServed as NoSuchKind
from tuneyard.kubernetes import Unreachable as Away
from tuneyard.kubernetes.kinds import ATTEMPT_REPORT, JOBSPEC, RAYJOB
from tuneyard.runtime.attempt import member_api
from tuneyard_operators.kube import Cache, Connection

CANCEL = patch_object(JOBSPEC, "maps", "bot", {"spec": {"cancelled": True}})
Send = Callable[[ScriptedServer], Any]


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses of transports, in seconds, which nobody waits for; threads of the server sleep as ever."""
    found: list[float] = []
    waited = asyncio.sleep

    async def no_pause(seconds: float, result: Any = None) -> Any:
        if seconds:
            found.append(seconds)
        return await waited(0, result)

    monkeypatch.setattr(asyncio, "sleep", no_pause)
    monkeypatch.setattr(time, "sleep", found.append)
    return found


def by_hub(server: ScriptedServer, work: Callable[[Connection], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        connection = Connection(asyncio_client.Configuration(host=server.url))
        try:
            return await work(connection)
        finally:
            await connection.close()

    return asyncio.run(run())


def client_of(server: ScriptedServer) -> ApiServer:
    return ApiServer(Address(server.url, "maps", "a test"), kubernetes.client.Configuration(host=server.url))


def patch_by_hub(server: ScriptedServer) -> Any:
    return by_hub(server, lambda connection: connection.patch(JOBSPEC, "maps", "bot", {"spec": {"cancelled": True}}))


def patch_by_client(server: ScriptedServer) -> Any:
    return client_of(server).ask(CANCEL)


def report_of(server: ScriptedServer, folder: Path) -> member_api.ReportObject:
    token = folder / "token"
    token.write_text("secret\n")
    return member_api.ReportObject(member_api.ApiServer(server.url, folder / "ca.crt", token), "maps", "bot-1", {"a": "b"})


@pytest.fixture(params=["hub", "client", "pod"])
def send(request: pytest.FixtureRequest, tmp_path: Path) -> Send:
    """A merge patch, by one of the three."""

    def patch_by_pod(server: ScriptedServer) -> Any:
        return report_of(server, tmp_path).put(AttemptState())

    return {"hub": patch_by_hub, "client": patch_by_client, "pod": patch_by_pod}[request.param]


SHED = Answer(429, {}, {"Retry-After": "2"})
BUSY = refusal(503, "ServiceUnavailable", retryAfterSeconds=3)


@pytest.mark.parametrize(
    ("answers", "requests", "waited"),
    [
        ([SHED, Answer()], 2, [2.0]),
        ([SHED, BUSY, SHED, Answer()], 4, [2.0, 3.0, 2.0]),
        ([refusal(429), Answer()], 2, [1.0]),
        ([Answer(429, {}, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}), Answer()], 2, [1.0]),
    ],
)
def test_a_server_that_sheds_load_is_asked_again_when_it_says(
    answers: list[Answer], requests: int, waited: list[float], send: Send, pauses: list[float]
) -> None:
    with scripted(answers) as server:
        send(server)
    assert len(server.asked) == requests
    assert pauses == waited
    assert {(asked.method, asked.content_type) for asked in server.asked} == {("PATCH", "application/merge-patch+json")}


@pytest.mark.parametrize(
    ("answer", "requests"),
    [
        (SHED, 4),
        (refusal(500, "InternalError"), 1),
        (refusal(503), 1),
        (refusal(409, "Conflict"), 1),
        (refusal(410, "Expired"), 1),
        (refusal(422, "Invalid", name="bot"), 1),
        (refusal(403, "Forbidden"), 1),
        (refusal(401, "Unauthorized"), 1),
        (Answer(413, b"too large"), 1),
        (Answer(404, b"404 page not found\n"), 1),
        (Answer(200, b"<html>"), 1),
        (Answer(302, b"", {"Location": "http://127.0.0.1:1/"}), 1),
    ],
)
def test_nothing_else_is_sent_twice(answer: Answer, requests: int, send: Send) -> None:
    with scripted([answer]) as server, pytest.raises((ApiError, TuneyardError, member_api.ApiUnavailable)):
        send(server)
    assert len(server.asked) == requests


@pytest.mark.parametrize(
    ("answer", "hub", "client"),
    [
        (refusal(404, "NotFound", name="bot"), NoSuchObject, Missing),
        (Answer(404, b"404 page not found\n"), NoSuchKind, NotInstalled),
        (refusal(409, "Conflict", name="bot"), ApiError, Overtaken),
        (refusal(422, "Invalid", causes=[{"field": "spec.a", "message": "Required value"}]), ApiError, Refused),
        (refusal(500, "InternalError"), Away, Unreachable),
        (Answer(200, b"<html>"), Away, Unreachable),
    ],
)
def test_hub_and_client_tell_the_same_things_apart(answer: Answer, hub: type[Exception], client: type[Exception]) -> None:
    with scripted([answer]) as server:
        with pytest.raises(hub):
            patch_by_hub(server)
        with pytest.raises(client):
            patch_by_client(server)


# --- the pod


def test_a_report_that_is_not_there_is_created(tmp_path: Path) -> None:
    missing, taken = refusal(404, "NotFound", name="bot-1"), refusal(409, "AlreadyExists", name="bot-1")
    stop = Answer(200, {"spec": {"stop": {"reason": "Preempted", "graceS": 5}}})
    for created in (Answer(201), taken):
        with scripted([missing, created, stop]) as server:
            found = report_of(server, tmp_path).put(AttemptState())
        assert found is not None
        assert found.reason == "Preempted"
        assert [asked.method for asked in server.asked] == ["PATCH", "POST", "PATCH"]
        assert server.asked[1].body["metadata"] == {"name": "bot-1", "labels": {"a": "b"}}
        assert (server.asked[1].body["kind"], server.asked[1].body["apiVersion"]) == (ATTEMPT_REPORT.name, ATTEMPT_REPORT.api_version)


def test_a_member_that_does_not_serve_reports_yet_is_told_nothing(tmp_path: Path) -> None:
    with scripted([Answer(404, b"404 page not found\n")]) as server, pytest.raises(member_api.ApiUnavailable, match="404"):
        report_of(server, tmp_path).put(AttemptState())
    assert [asked.method for asked in server.asked] == ["PATCH"]


# --- lists


def test_a_list_whose_pages_expire_starts_once_more() -> None:
    page, rest = {"items": [{"n": 1}], "metadata": {"continue": "t"}}, {"items": [{"n": 2}], "metadata": {}}
    with scripted([Answer(200, page), refusal(410, "Expired"), Answer(200, page), Answer(200, rest)]) as server:
        assert client_of(server).list(list_objects(JOBSPEC, "maps")) == [{"n": 1}, {"n": 2}]
    assert [asked.target.partition("?")[2] for asked in server.asked] == ["limit=500", "limit=500&continue=t"] * 2


def test_a_list_whose_pages_expire_again_and_again_ends() -> None:
    page = Answer(200, {"items": [{"n": 1}], "metadata": {"continue": "t"}})
    answers = [page, refusal(410, "Expired"), page, refusal(410, "Expired")]
    with scripted(answers) as server, pytest.raises(Unreachable, match="cannot answer just now"):
        client_of(server).list(list_objects(JOBSPEC, "maps"))


def test_a_name_of_the_command_line_leads_to_no_other_object() -> None:
    with scripted([refusal(404, "NotFound", name="x"), Answer(200, {"items": []})]) as server, pytest.raises(Missing):
        Hub(client_of(server)).job("../clusters/x?limit=1")
    assert server.asked[0].target.endswith("/namespaces/maps/jobspecs/..%2Fclusters%2Fx%3Flimit%3D1")


# --- watches


def item(version: str, name: str = "bot") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "maps", "uid": "u", "resourceVersion": version, "creationTimestamp": "2026-01-01T00:00:00Z"}
    }


def events(*found: tuple[str, dict[str, Any]]) -> Answer:
    return Answer(200, b"".join(json.dumps({"type": kind, "object": each}).encode() + b"\n" for kind, each in found))


GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: 1 (9)"}


@pytest.mark.parametrize("answer", [refusal(410, "Expired"), events(("ERROR", GONE))], ids=["as an answer", "as an event"])
def test_a_watch_from_a_version_that_is_too_old_has_expired(answer: Answer) -> None:
    async def watch(connection: Connection) -> None:
        async for _ in connection.watch(JOBSPEC, "maps", since="1"):
            pass

    with scripted([answer]) as server:
        with pytest.raises(Expired):
            by_hub(server, watch)
        with pytest.raises(Expired):
            list(client_of(server).changes(watch_objects(JOBSPEC, "maps", since="1", timeout_s=5), seconds=5))


def test_a_job_is_followed_through_an_expired_watch() -> None:
    """The hub was there all the time: it counts as away to nobody."""
    away: list[TuneyardError] = []
    old, new = Answer(200, item("1")), Answer(200, item("9"))
    with scripted([old, old, refusal(410, "Expired"), new]) as server:
        following = Hub(client_of(server)).follow("bot", timeout_s=60, on_away=away.append)
        assert [next(following).version, next(following).version] == ["1", "9"]
    assert away == []


def test_hub_and_client_read_the_same_events() -> None:
    answer = events(("ADDED", item("1")), ("BOOKMARK", item("2")), ("DELETED", item("3")))

    async def watch(connection: Connection) -> list[str]:
        return [kind async for kind, _ in connection.watch(JOBSPEC, "maps", since="0")]

    with scripted([answer]) as server:
        by_client = [kind for kind, _ in client_of(server).changes(watch_objects(JOBSPEC, "maps", since="0", timeout_s=5), seconds=5)]
        assert by_hub(server, watch) == by_client == ["ADDED", "BOOKMARK", "DELETED"]


# --- objects that no decoder takes

DEEP = b"[" * 9_000 + b"]" * 9_000


def nested(name: str) -> bytes:
    return json.dumps({**item("7", name), "spec": {"cancelled": True, "tasks": 77}}).encode().replace(b"77", DEEP)


def test_hub_and_client_read_around_what_no_decoder_takes() -> None:
    listed = b'{"metadata":{"resourceVersion":"9"},"items":[%s,%s]}' % (nested("deep"), json.dumps(item("8", "sound")).encode())
    told = b'{"type":"MODIFIED","object":%s}\n' % nested("deep")
    watch = watch_objects(JOBSPEC, "maps", since="0", timeout_s=5)

    async def changes(connection: Connection) -> list[dict[str, Any]]:
        return [found async for _, found in connection.watch(JOBSPEC, "maps", since="0")]

    with scripted([Answer(200, listed)]) as server:
        by_list = by_hub(server, lambda connection: connection.list(JOBSPEC, "maps"))["items"]
        assert client_of(server).list(list_objects(JOBSPEC, "maps")) == by_list
        assert {job.name for job in Hub(client_of(server)).jobs("maps")} == {"deep", "sound"}
    with scripted([Answer(200, told)]) as server:
        by_watch = by_hub(server, changes)
        assert [found for _, found in client_of(server).changes(watch, seconds=5)] == by_watch
    with scripted([Answer(200, nested("deep"))]) as server:
        by_get = by_hub(server, lambda connection: connection.get(JOBSPEC, "maps", "deep"))
        assert client_of(server).ask(get_object(JOBSPEC, "maps", "deep")) == by_get
    assert by_list[0] == by_watch[0] == by_get
    assert (by_get["spec"], by_list[1]) == ({"cancelled": True}, item("8", "sound"))


def test_pages_of_the_hub_grow_while_objects_are_small() -> None:
    pages = [Answer(200, {"items": [item("1", f"a{n}")], "metadata": {"continue": "t", "resourceVersion": "5"}}) for n in range(4)]
    with scripted([*pages, LIST]) as server:
        found = by_hub(server, lambda connection: connection.list(JOBSPEC, "maps"))
    assert [each["metadata"]["name"] for each in found["items"]] == ["a0", "a1", "a2", "a3", "bot"]
    assert [asked.target.partition("limit=")[2].partition("&")[0] for asked in server.asked] == ["16", "64", "256", "500", "500"]
    large = {**item("1"), "spec": "x" * 2**21}
    with scripted([Answer(200, {"items": [large] * 4, "metadata": {"continue": "t"}}), LIST]) as server:
        by_hub(server, lambda connection: connection.list(JOBSPEC, "maps"))
    assert "limit=7&" in server.asked[1].target  # 16 took 8 MiB


# --- the hub's cache


def test_what_the_hub_creates_while_a_list_is_under_way_stays_in_its_cache() -> None:
    """The list is of the moment before: the watch that follows it brings the object."""
    changes: list[tuple[str, bool]] = []

    async def run(connection: Connection) -> Cache:
        cache = Cache(connection, JOBSPEC, on_change=lambda key, _old, new: changes.append((key[1], new is not None)))
        cache.put(item("2", "gone"))
        listing = asyncio.create_task(cache._list())
        await asyncio.sleep(0)
        cache.put(item("6", "made"))
        cache.put(item("7"))
        assert await listing == "5"
        return cache

    with scripted([LIST]) as server:
        cache: Cache = by_hub(server, run)
    assert changes == [("gone", True), ("made", True), ("bot", True), ("gone", False)]
    assert [found["metadata"]["resourceVersion"] for found in cache.items.values()] == ["6", "7"]


def follow(server: ScriptedServer, enough: Callable[[Cache], bool]) -> Cache:
    """A cache that runs until `enough`."""

    async def run(connection: Connection) -> Cache:
        cache = Cache(connection, JOBSPEC)
        task = asyncio.create_task(cache.run())
        async with asyncio.timeout(30):
            while not enough(cache):
                await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return cache

    found: Cache = by_hub(server, run)
    return found


LIST = Answer(200, {"metadata": {"resourceVersion": "5"}, "items": [item("4")]})


@pytest.mark.parametrize(
    "round_",
    [[events()], [refusal(410, "Expired"), LIST], [Answer(404, b"404 page not found\n"), LIST], [SHED, LIST]],
    ids=["ended at once", "expired", "not served", "shed"],
)
def test_a_watch_that_brings_nothing_is_begun_again_after_growing_pauses(round_: list[Answer], pauses: list[float]) -> None:
    with scripted([LIST, *round_ * 12]) as server:
        follow(server, lambda _: len(pauses) >= 7)
    assert sum(pauses[:7]) > 0.75 * (0.5 + 1 + 2 + 4 + 8)
    assert len(server.asked) < 30


def test_a_watch_that_brings_events_is_begun_again_at_once(pauses: list[float]) -> None:
    rounds = [events(("MODIFIED", item(str(version)))) for version in range(6, 12)]
    with scripted([LIST, *rounds]) as server:
        cache = follow(server, lambda cache: cache.items.get(("maps", "bot"), {}).get("metadata", {}).get("resourceVersion") == "11")
    assert cache.error is None
    assert pauses == []


def test_an_object_counts_as_gone_where_the_server_says_so_and_not_where_its_kind_is_not_served() -> None:
    """An API server that starts knows no custom kinds for a moment: the RayJob is there, and its pods are."""
    with scripted([refusal(404, "NotFound", name="a")]) as server:
        assert by_hub(server, lambda connection: connection.delete(RAYJOB, "maps", "a"))
    with scripted([Answer(404, b"404 page not found\n")]) as server, pytest.raises(NoSuchKind):
        by_hub(server, lambda connection: connection.delete(RAYJOB, "maps", "a"))


def test_requests_of_one_kind_are_one_to_all() -> None:
    request: Request = get_object(JOBSPEC, "maps", "bot")
    with scripted([Answer(200, item("1"))]) as server:
        client_of(server).ask(request)
        by_hub(server, lambda connection: connection.get(JOBSPEC, "maps", "bot"))
    assert server.asked[0].target == server.asked[1].target == request.target
