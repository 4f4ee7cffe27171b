"""A headless Chromium that opens one page and tells what it asked the network for, what went wrong, and how it looks."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import aiohttp
from tests.servers.installed import call, chromium, free_port, made_once, running

AXE = "axe-core@4.14.1"
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
    with browser(folder) as tab:
        return tab.look(page.absolute().as_uri(), width=width, dark=dark)


@contextmanager
def browser(folder: Path, *, hosts: Mapping[str, str] | None = None, trusted: str = "") -> Iterator[Tab]:
    """One tab of a browser of its own, for several pages one after the other. `hosts`: addresses of names that no DNS knows; `trusted`: an
    origin that counts as one with TLS."""
    port = free_port()
    command = [chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    command += [f"--remote-debugging-port={port}", f"--user-data-dir={folder / 'profile'}"]
    command += [f"--host-resolver-rules={','.join(f'MAP {name} {address}' for name, address in (hosts or {}).items())}", "about:blank"]
    if trusted:
        command.insert(-1, f"--unsafely-treat-insecure-origin-as-secure={trusted}")
    with running(command, port=port, log=folder / "chromium.log"), asyncio.Runner() as loop:
        session, socket = loop.run(_connect(f"http://127.0.0.1:{port}"))
        try:
            yield Tab(loop, _Protocol(socket))
        finally:
            loop.run(session.close())


async def _connect(address: str) -> tuple[aiohttp.ClientSession, aiohttp.ClientWebSocketResponse]:
    session = aiohttp.ClientSession()
    async with session.get(f"{address}/json/list") as answer:
        target = next(target for target in await answer.json() if target["type"] == "page")
    return session, await session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0)


class Tab:
    """A tab that a test steers. `seen` is of the page that was opened last."""

    def __init__(self, loop: asyncio.Runner, protocol: _Protocol) -> None:
        self._loop = loop
        self._protocol = protocol
        for domain in ("Page", "Network", "Runtime", "Log"):
            loop.run(protocol.call(f"{domain}.enable"))
        loop.run(protocol.call("Page.setLifecycleEventsEnabled", enabled=True))

    @property
    def seen(self) -> Seen:
        return self._protocol.seen

    def look(self, url: str, *, width: int = 1280, dark: bool = False, settle_s: float = SETTLE_S, pictured: bool = True) -> Seen:
        """Open a page, and tell how it looks once it has settled."""
        self._protocol.seen = Seen()
        call = self._protocol.call
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self._loop.run(call("Emulation.setDeviceMetricsOverride", **size))
        self._loop.run(call("Emulation.setScrollbarsHidden", hidden=True))
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._loop.run(call("Emulation.setEmulatedMedia", features=[scheme]))
        self._loop.run(self._protocol.open(url))
        self.rest(settle_s)
        self.seen.width = self.ask("document.documentElement.scrollWidth") or 0
        self.seen.text = self.ask("document.body.innerText") or ""
        if pictured:
            self.seen.screenshot = self.picture()
        return self.seen

    def ask(self, expression: str) -> Any:
        """The value of an expression of JavaScript, or of the promise that it makes."""
        found = self._loop.run(self._protocol.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True))
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait_for(self, condition: str, *, limit_s: float) -> float:
        """Wait until an expression of JavaScript is true, also across a reload of the page. Returns the seconds that it took."""
        began = time.monotonic()
        while True:
            found = self._loop.run(self._protocol.answer("Runtime.evaluate", expression=condition, returnByValue=True))
            if found.get("result", {}).get("result", {}).get("value") is True:
                return time.monotonic() - began
            assert time.monotonic() - began < limit_s, f"not within {limit_s} s: {condition}"
            self.rest(0.05)

    def press(self, *keys: str) -> None:
        """Press keys one after the other: a character, or a name such as Enter, Tab and Escape."""
        codes = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowDown": 40, "/": 191, "?": 191}
        for key in keys:
            text = "\r" if key == "Enter" else key if len(key) == 1 else ""
            code = codes.get(key, ord(key.upper()) if len(key) == 1 else 0)
            for kind in ("keyDown", "keyUp"):
                values = {"type": kind, "key": key, "windowsVirtualKeyCode": code, **({"text": text} if text and kind == "keyDown" else {})}
                self._loop.run(self._protocol.call("Input.dispatchKeyEvent", **values))
        self.rest(0.15)

    def rest(self, seconds: float) -> None:
        """Let the page go on. What it asks for meanwhile is seen at the next call."""
        self._loop.run(asyncio.sleep(seconds))

    def picture(self, *, whole: bool = True) -> bytes:
        """The page as PNG: all of it, or its visible part."""
        taken = self._loop.run(self._protocol.call("Page.captureScreenshot", captureBeyondViewport=whole))
        return base64.b64decode(taken["data"])


def violations(tab: Tab) -> list[str]:
    """Serious findings of axe-core on the page that is open. It runs by the debugger, which the page's content policy does not bind."""
    tab.ask(f"{_axe()}; 0")
    found = json.loads(tab.ask("axe.run(document, {resultTypes: ['violations']}).then(r => JSON.stringify(r.violations))"))
    return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found if each["impact"] in ("serious", "critical")]


@cache
def _axe() -> str:
    """The source of axe-core, by npm, once per machine."""

    def bring(place: Path) -> None:
        call(["npm", "pack", "--silent", AXE], cwd=place)
        call(["tar", "xzf", next(place.glob("*.tgz")).name, "package/axe.min.js"], cwd=place)

    return (made_once(AXE.replace("@", "-"), bring) / "package" / "axe.min.js").read_text()


class _Protocol:
    """The browser's debugging protocol for one tab: calls, and the events that come between their answers."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self.seen = Seen()
        self._ids = itertools.count(1)
        self._loaded: set[str] = set()
        """By id of their loader, the pages that have loaded."""

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        message = await self.answer(method, **parameters)
        assert "error" not in message, message
        return dict(message["result"])

    async def answer(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer to a call: its `result`, or its `error`, as for a page that is left at this moment."""
        number = next(self._ids)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while True:
            message = await self._next()
            if message.get("id") == number:
                return message

    async def open(self, url: str) -> None:
        """Go to a page, and wait until it has loaded. The page before may load itself again at this moment: that is another loader."""
        gone = await self.call("Page.navigate", url=url)
        assert "errorText" not in gone, gone
        while gone["loaderId"] not in self._loaded:
            await self._next()

    async def _next(self) -> dict[str, Any]:
        message: dict[str, Any] = await self._socket.receive_json(timeout=30)
        method, values = message.get("method", ""), message.get("params", {})
        if method == "Page.lifecycleEvent" and values["name"] == "load":
            self._loaded.add(values["loaderId"])
        elif method == "Network.requestWillBeSent":
            self.seen.requests.append(values["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.seen.errors.append(values["exceptionDetails"]["text"])
        elif method == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
            self.seen.errors.append(values["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and values["type"] in ("error", "warning", "assert"):
            self.seen.errors.append(str(values["args"]))
        return message
