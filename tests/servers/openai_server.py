"""A server in the test's process that answers as OpenAI's API does, over real sockets, with faults that a test plants."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from aiohttp import web

KEY = "sk-test-0123456789abcdef"
MODEL = "small"


@dataclass
class Fault:
    """What is sent instead of an answer. `hang_s`: the reply begins this late. `cut`: the connection ends in the middle of the body.
    `drip_s`: pause between single bytes. `reset`: no reply at all."""

    status: int = 200
    body: str | bytes = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    hang_s: float = 0.0
    cut: bool = False
    drip_s: float = 0.0
    reset: bool = False


Plan = Callable[[dict[str, Any], int], Fault | None]
"""Body of a request and its number, from 0, to the fault instead of its answer."""


def no_fault(_: dict[str, Any], __: int) -> Fault | None:
    return None


class OpenAIServer:
    """A context. `asked`: the bodies of all requests. `answers`: prompt to answer; by default a sentence that holds the prompt.
    `address`, `port`: where it listens."""

    def __init__(
        self,
        plan: Plan = no_fault,
        *,
        key: str | None = KEY,
        answer: Callable[[str], Any] | None = None,
        address: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.plan, self.key = plan, key
        self._address, self._port = address, port
        self.answer = answer or (lambda prompt: f"answer to {prompt}")
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.most_at_once = self._now = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="openai-server", daemon=True)
        self._runner: web.AppRunner | None = None
        self.url = ""

    def __enter__(self) -> OpenAIServer:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)

    def prompts(self) -> Counter[str]:
        """Number of requests by prompt."""
        return Counter(prompt_of(body) for body in self.asked)

    # --- the server's thread ----------------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._start())
        self._ready.set()
        self._loop.run_forever()
        assert self._runner is not None
        self._loop.run_until_complete(self._runner.cleanup())
        self._loop.close()

    async def _start(self) -> None:
        app = web.Application(client_max_size=64 * 1024**2)
        for path in ("chat/completions", "completions", "embeddings"):
            app.router.add_post(f"/v1/{path}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._address, self._port)
        await site.start()
        self.url = f"http://{self._address}:{self._runner.addresses[0][1]}/v1"

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        try:
            return await self._reply(request)
        finally:
            self._now -= 1

    async def _reply(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        number = len(self.asked)
        self.asked.append(body)
        self.headers.append(dict(request.headers))
        fault = self.plan(body, number)
        if fault is not None:
            return await _faulty(request, fault)
        if self.key is not None and request.headers.get("Authorization") != f"Bearer {self.key}":
            return _error(401, f"Incorrect API key provided: {request.headers.get('Authorization')}", "invalid_api_key")
        if body["model"] != MODEL:
            return _error(404, f"The model `{body['model']}` does not exist or you do not have access to it.", "model_not_found")
        if "input" in body:
            return web.json_response(embeddings(body))
        return web.json_response(completion(body, self.answer(prompt_of(body))))


def prompt_of(body: Mapping[str, Any]) -> str:
    if "input" in body:
        return str(body["input"])
    return str(body["prompt"] if "prompt" in body else body["messages"][-1]["content"]) if body else ""


def completion(body: Mapping[str, Any], text: Any, finish_reason: str = "stop", **changes: Any) -> dict[str, Any]:
    """The JSON of an answer, by OpenAI's reference."""
    said = {"text": text} if "prompt" in body else {"message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": len(prompt_of(body).split()), "completion_tokens": len(str(text).split())}
    return {"object": "chat.completion", "choices": [{"index": 0, "finish_reason": finish_reason, **said}], "usage": usage, **changes}


def embeddings(body: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON of embeddings: counts of letters, so that texts with the same letters have cosine 1. The last text comes first."""
    texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
    vectors = [[float(text.lower().count(letter)) for letter in "abcdefghijklmnopqrstuvwxyz0123456789"] for text in texts]
    data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    tokens = sum(len(text.split()) for text in texts)
    return {"object": "list", "data": data[::-1], "model": body["model"], "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}


def _error(status: int, message: str, code: str) -> web.Response:
    return web.json_response({"error": {"message": message, "type": "invalid_request_error", "code": code}}, status=status)


async def _faulty(request: web.Request, fault: Fault) -> web.StreamResponse:
    body = fault.body if isinstance(fault.body, bytes) else fault.body.encode()
    await asyncio.sleep(fault.hang_s)
    assert request.transport is not None
    if fault.reset:
        request.transport.abort()
        return web.Response()
    response = web.StreamResponse(status=fault.status, headers={**fault.headers, "Content-Length": str(len(body))})
    await response.prepare(request)
    if fault.cut:
        await response.write(body[: len(body) // 2])
        request.transport.close()
        return response
    if fault.drip_s:
        for byte in body:
            await response.write(bytes([byte]))
            await asyncio.sleep(fault.drip_s)
        return response
    await response.write(body)
    return response


def error_json(message: str, code: str = "") -> str:
    return json.dumps({"error": {"message": message, "code": code}})
