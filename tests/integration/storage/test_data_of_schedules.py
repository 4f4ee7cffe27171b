"""Data that runs wait for, on a real S3 server: seen with keys that the run will have, and with no others."""

from __future__ import annotations

import asyncio
import base64
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.clusters.hub_in_memory import until
from tests.servers.installed import S3
from tests.servers.memory_api import MemoryApi

from tuneyard.api.schedule_status import WaitingRun
from tuneyard.runtime.scheduled.looks import is_there
from tuneyard.schedules import Look
from tuneyard.storage import open_store
from tuneyard_operators.hub.data_looks import DataLooks
from tuneyard_operators.hub.name_nodes import NameNodes
from tuneyard_operators.kube import CLUSTER, SECRET, ApiError
from tuneyard_operators.logs.limits import Limits
from tuneyard_operators.logs.member_keys import MemberKeys
from tuneyard_operators.logs.storage_keys import StorageKeys

KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


def test_a_file_and_a_folder_are_there_and_a_prefix_is_not(s3: S3, tmp_path: Path) -> None:
    for folder in (f"s3://{s3.bucket}/waits", str(tmp_path / "waits")):
        open_store(folder).put("date=2026-11-23/part-0.parquet", b"x")
        open_store(folder).put("date=2026-11-23/_SUCCESS", b"")
        looks = [f"{folder}/{path}" for path in ("date=2026-11-23/_SUCCESS", "date=2026-11-23", "date=2026-11-23/", "date=2026-11", "none")]
        assert [is_there(uri) for uri in looks] == [True, True, True, False, False]


async def look(api: MemoryApi, path: str, *, template: Mapping[str, Any], name_nodes: Sequence[str] = ()) -> Look:
    async def reach(_: Any) -> Any:
        raise ApiError(403, "no way")

    keys = StorageKeys(api, MemberKeys(reach, Limits()), "", {})  # type: ignore[arg-type]
    looks = DataLooks(keys, NameNodes(name_nodes))
    item = {
        "metadata": {"name": "nightly", "namespace": "maps", "creationTimestamp": "2026-11-22T12:00:00Z"},
        "spec": {"template": {"spec": {"tasks": [{"name": "a", "process": {"command": ["true"]}}], **template}}},
    }
    waiting = [WaitingRun(name="nightly-1", due="2026-11-23T02:00:00Z", since="2026-11-23T02:00:00Z", path=path)]
    looks.want(("maps", "nightly"), item, waiting)
    found = await until(lambda: looks.of(("maps", "nightly")), "the hub has looked")
    return found["nightly-1"]


async def hub(s3: S3, *, secret: str = "s3", member: Mapping[str, str] | None = None) -> MemoryApi:
    api = MemoryApi()
    data = {name: base64.b64encode(s3.environment[name].encode()).decode() for name in KEYS}
    await api.create(SECRET, "maps", {"metadata": {"name": secret}, "data": data})
    public = {name: value for name, value in s3.environment.items() if name not in KEYS}
    env = [{"name": name, "value": value} for name, value in {**public, **(member or {})}.items()]
    await api.create(
        CLUSTER, None, {"metadata": {"name": "east"}, "spec": {"skus": [{"name": "cpu", "nodes": 1, "gpusPerNode": 1}], "env": env}}
    )
    return api


@pytest.mark.parametrize("way", ["named", "namespace", "member"])
def test_a_hub_sees_data_with_keys_of_the_run(s3: S3, way: str) -> None:
    open_store(f"s3://{s3.bucket}/hub").put("date=2026-11-23/_SUCCESS", b"")
    names = [{"name": name, "valueFrom": {"secretKeyRef": {"name": "s3", "key": name}}} for name in KEYS] if way == "named" else []

    async def story() -> None:
        member = {name: s3.environment[name] for name in KEYS} if way == "member" else None
        api = await hub(s3, secret={"namespace": "tuneyard-storage"}.get(way, "s3"), member=member)
        for path, arrived in (("date=2026-11-23/_SUCCESS", True), ("date=2026-11-23/", True), ("date=2026-11-24", False)):
            assert await look(api, f"s3://{s3.bucket}/hub/{path}", template={"env": names}) == Look(arrived)

    asyncio.run(story())


def test_a_hub_without_keys_says_so_and_never_uses_its_own(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    open_store(f"s3://{s3.bucket}/own").put("x", b"")
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)

    async def story() -> None:
        found = await look(await hub(s3), f"s3://{s3.bucket}/own/x", template={})
        assert not found.arrived
        assert "the hub has no keys for it" in found.why_not
        elsewhere = {"env": [{"name": "AWS_ENDPOINT_URL", "value": "http://169.254.169.254"}]}
        assert "no Cluster of the hub names this server" in (await look(await hub(s3), "s3://a/x", template=elsewhere)).why_not
        for path in ("hdfs://nn/x", "gs://logs/x", "/etc/passwd"):
            assert "on S3 and over webhdfs:// alone" in (await look(await hub(s3), path, template={})).why_not

    asyncio.run(story())


def test_a_hub_sees_data_on_hdfs_where_its_administrators_allow_the_name_node(webhdfs_port: int) -> None:
    node = f"127.0.0.1:{webhdfs_port}"
    store = open_store(f"webhdfs://tester@{node}/waits")
    store.put("date=2026-11-23/_SUCCESS", b"")
    store.put("a b+c%20d/part-0", b"x")
    store.put("emptied/x", b"")
    store.delete("emptied/x")

    async def story() -> None:
        paths = {"date=2026-11-23/_SUCCESS": True, "date=2026-11-23/": True, "date=2026-11-23": True, "a b+c%20d": True, "": True}
        for path, arrived in {**paths, "date=2026-11": False, "emptied": False, "none/x": False}.items():
            for allowed in (node, "127.0.0.1"):
                found = await look(MemoryApi(), f"webhdfs://tester@{node}/waits/{path}", template={}, name_nodes=[allowed])
                assert found == Look(arrived), path
        for path in (f"webhdfs://{node}/waits/x", "webhdfs://169.254.169.254/x", "webhdfs://127.0.0.1:1/x", "webhdfs://a:b@other/x"):
            assert "the hub may not ask" in (await look(MemoryApi(), path, template={}, name_nodes=["other"][: path.count("169")])).why_not

    asyncio.run(story())


def test_hdfs_is_asked_as_the_user_of_the_run(webhdfs_port: int) -> None:
    node = f"127.0.0.1:{webhdfs_port}"
    open_store(f"webhdfs://tester@{node}/closed").put("inner/x", b"")
    url = f"http://{node}/webhdfs/v1/closed?op=SETPERMISSION&permission=700&user.name=tester"
    with urllib.request.urlopen(urllib.request.Request(url, method="PUT")) as answer:
        assert answer.status == 200

    async def story() -> None:
        for user, arrived in (("tester", True), ("somebody", False)):
            env = {"env": [{"name": "HADOOP_USER_NAME", "value": user}]}
            found = await look(MemoryApi(), f"webhdfs://{node}/closed/inner/x", template=env, name_nodes=[node])
            assert found.arrived is arrived
            assert arrived or "refuses the user somebody (403)" in found.why_not

    asyncio.run(story())


def test_a_name_node_that_is_away_or_none_is_told() -> None:
    async def answered(request: web.Request) -> web.Response:
        said.append(request.path_qs)
        return web.Response(status=int(request.query["user.name"]), headers={"Location": "/else"}, text="<html>")

    said: list[str] = []

    async def story() -> None:
        app = web.Application()
        app.router.add_get("/{path:.*}", answered)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        node = f"127.0.0.1:{runner.addresses[0][1]}"
        for status in (200, 302, 500):
            found = await look(MemoryApi(), f"webhdfs://{status}@{node}/x", template={}, name_nodes=["127.0.0.1"])
            assert f"answers {status}, and not as a name node does" in found.why_not
        await runner.cleanup()
        assert "cannot be reached" in (await look(MemoryApi(), f"webhdfs://{node}/x", template={}, name_nodes=["127.0.0.1"])).why_not

    asyncio.run(story())
    assert len(said) == 3, "no redirect is followed"
