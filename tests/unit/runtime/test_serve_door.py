"""How the pod that hears requests for a model that sleeps asks its API server. tests/cluster/test_door.py runs it before a real one."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest

from tuneyard.runtime.attempt.member_api import ApiServer, ApiUnavailable, ReportObject
from tuneyard.runtime.serve.door import Door
from tuneyard.runtime.serve.middleware import CHATS


def test_a_flood_asks_an_api_server_that_is_away_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []
    sent: list[MutableMapping[str, Any]] = []

    def away(self: ReportObject, request: Any) -> Any:  # noqa: ARG001 - a method
        asked.append(request.target)
        raise ApiUnavailable("it is away")

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"{}"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def run() -> None:
        door = Door(ReportObject(ApiServer("https://away", tmp_path, tmp_path), "jobs", "bot-serve-1"), "k", hold_s=0)
        scope = {"type": "http", "path": CHATS, "method": "POST", "headers": [(b"authorization", b"Bearer k")]}
        await asyncio.gather(*(door(scope, receive, send) for _ in range(50)))

    monkeypatch.setattr(ReportObject, "_answer", away)
    asyncio.run(run())
    assert len(asked) == 1
    assert [each["status"] for each in sent if "status" in each] == [503] * 50
    assert all(b"The hub cannot be told of this request: it is away" in each["body"] for each in sent if "body" in each)
