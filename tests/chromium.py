"""A headless Chromium that opens one page and tells what it asked the network for, what went wrong, and how it looks."""

from __future__ import annotations

import asyncio
import base64
import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from tests.servers import chromium, free_port, running

SETTLE_S = 0.5
"""Time for requests and errors that come after the page has loaded."""


@dataclass
class Seen:
    """What one page did. `width` is the width of its content in CSS pixels."""

    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    width: int = 0
    screenshot: bytes = b""
    text: str = ""


def look_at(page: Path, folder: Path, *, width: int = 1280, dark: bool = False) -> Seen:
    """Open a local page in a window of that width and colour scheme; `folder` is for the browser's own files."""
    port = free_port()
    command = [chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    command += [f"--remote-debugging-port={port}", f"--user-data-dir={folder / 'profile'}", "about:blank"]
    with running(command, port=port, log=folder / "chromium.log"):
        return asyncio.run(_look(f"http://127.0.0.1:{port}", page.absolute().as_uri(), width, dark))


async def _look(browser: str, url: str, width: int, dark: bool) -> Seen:
    seen = Seen()
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{browser}/json/list") as answer:
            target = next(target for target in await answer.json() if target["type"] == "page")
        async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
            tab = _Tab(socket, seen)
            for domain in ("Page", "Network", "Runtime", "Log"):
                await tab.call(f"{domain}.enable")
            await tab.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
            scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
            await tab.call("Emulation.setEmulatedMedia", features=[scheme])
            await tab.call("Page.navigate", url=url)
            await tab.until("Page.loadEventFired")
            await asyncio.sleep(SETTLE_S)
            seen.width = (await tab.evaluate("document.documentElement.scrollWidth")) or 0
            seen.text = (await tab.evaluate("document.body.innerText")) or ""
            picture = await tab.call("Page.captureScreenshot", captureBeyondViewport=True)
            seen.screenshot = base64.b64decode(picture["data"])
    return seen


class _Tab:
    """The browser's debugging protocol for one tab: calls, and the events that come between their answers."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, seen: Seen) -> None:
        self._socket = socket
        self._seen = seen
        self._ids = itertools.count(1)
        self._events: list[str] = []

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._ids)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while True:
            message = await self._next()
            if message.get("id") == number:
                assert "error" not in message, message
                return dict(message["result"])

    async def evaluate(self, expression: str) -> Any:
        return (await self.call("Runtime.evaluate", expression=expression, returnByValue=True))["result"].get("value")

    async def until(self, event: str) -> None:
        while event not in self._events:
            await self._next()

    async def _next(self) -> dict[str, Any]:
        message: dict[str, Any] = await self._socket.receive_json(timeout=30)
        method, values = message.get("method", ""), message.get("params", {})
        self._events.append(method)
        if method == "Network.requestWillBeSent":
            self._seen.requests.append(values["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self._seen.errors.append(values["exceptionDetails"]["text"])
        elif method == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
            self._seen.errors.append(values["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and values["type"] in ("error", "warning", "assert"):
            self._seen.errors.append(str(values["args"]))
        return message
