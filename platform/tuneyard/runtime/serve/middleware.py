"""Runs inside vLLM's server: gives each chat the template and the end tokens of its model, and refuses chats of models that take none. Of
columns it makes the prompt of the training.

vLLM's server has one chat template, and adapters may have been trained with others.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from tuneyard.api.prompt_templates import INPUT, PROMPT, prompt_template

FORMS = "TUNEYARD_SERVED_FORMS"
"""The variable that names the file with the form of each model (`forms.Form`), in the order in which they are named."""
CHATS, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
_COLUMNS = "columns"
"""The field of a request with a text for each column of `data.template`, in place of a prompt or of messages."""
MARK = "x-tuneyard-server"
"""The header in which a server tells its mark at /health."""
IDLE = "x-tuneyard-idle"
"""The header in which a server tells at /health for how many seconds nobody has asked it for an answer."""
_OPEN = ("/v1/models", "/health", "/version", "/metrics")
_TRUSTED = ("system", "developer", "assistant")
"""Roles whose texts may write control tokens, as in `data.control_tokens`."""
_MOST_BYTES = 64 * 1024**2
SERVER_KEY = "VLLM_API_KEY"
"""The variable with the key of vLLM's server, which looks at it only after its middleware."""
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Forms:
    """ASGI middleware. Other paths of vLLM's server are closed: some take prompts without asking for the key."""

    def __init__(self, app: Callable[[Message, Receive, Send], Awaitable[None]]) -> None:
        self._app = app
        self._mark = mark_of(os.environ[FORMS]).encode()
        with open(os.environ[FORMS], encoding="utf-8") as file:
            self._forms: dict[str, dict[str, Any]] = json.load(file)
        self._key = os.environ.get(SERVER_KEY, "").encode()
        self._answering, self._asked_at = 0, time.monotonic()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        path = scope.get("path", "")
        if path == "/health":
            idle_s = 0.0 if self._answering else time.monotonic() - self._asked_at
            send = _marked(send, self._mark, idle_s)
        if scope["type"] != "http" or not (path in (CHATS, COMPLETIONS, *_OPEN) or path.startswith("/v1/models/")):
            if scope["type"] == "http":
                await refuse(send, 404, f"there is no {path}: this server answers {CHATS}, {COMPLETIONS} and /v1/models")
            return
        if scope.get("method") != "POST" or path not in (CHATS, COMPLETIONS):
            await self._app(scope, receive, send)
            return
        if self._key and not has_key(scope, self._key):  # its body takes no memory, and it keeps no machine busy
            await refuse(send, 401, "the request has no valid key: send it in the header `Authorization: Bearer KEY`")
            return
        content = await _content(receive)
        if content is None:
            await refuse(send, 413, f"a request has at most {_MOST_BYTES // 1024**2} MiB")
            return
        try:
            body = json.loads(content)
        except ValueError:
            body = None
        if isinstance(body, dict):
            if refusal := self._changed(path, body):
                await refuse(send, 400, refusal)
                return
            content = json.dumps(body).encode()
        headers = [(name, value) for name, value in scope["headers"] if name != b"content-length"]
        headers.append((b"content-length", str(len(content)).encode()))
        self._answering += 1
        try:
            await self._app({**scope, "headers": headers}, _replayed(content, receive), send)
        finally:
            self._answering -= 1
            self._asked_at = time.monotonic()

    def _changed(self, path: str, body: dict[str, Any]) -> str:
        """Change a request into what its model needs. Returns why it is refused, or nothing."""
        name = body["model"] = body.get("model") or next(iter(self._forms))  # vLLM takes an empty name for the base
        form = self._forms.get(name) if isinstance(name, str) else None
        if form is not None and _COLUMNS in body and (refusal := _filled(path, body, name, form["made_by"])):
            return refusal
        if form is None or path != CHATS:
            return ""  # vLLM names an unknown model
        if form["why_plain"]:
            return f"{name} takes no chats: {form['why_plain']}. Send the prompt to {COMPLETIONS}"
        arguments = body.get("chat_template_kwargs")
        if body.get("chat_template") is not None or (isinstance(arguments, dict) and "chat_template" in arguments):
            return "a request cannot bring a chat template of its own"
        if spelled := _spelled(form["controls"], body):
            return f"a text spells the control token {spelled}, which would end a turn: take it out"
        body["chat_template"] = form["template"]
        given = body.get("stop_token_ids") or []
        if isinstance(given, list):
            body["stop_token_ids"] = [*given, *(end for end in form["ends"] if end not in given)]
        return ""


def _filled(path: str, body: dict[str, Any], name: str, made_by: str) -> str:
    """Replace the columns of a request by the prompt that `data.template` makes of them. Returns why it is refused, or nothing."""
    columns, field = body.pop(_COLUMNS), "messages" if path == CHATS else "prompt"
    if not made_by:
        return f"{name} was trained without data.template, so that columns make no prompt: send {field}"
    if body.get(field):
        return f"a request has {_COLUMNS} or {field}, and not both"
    template = prompt_template(made_by)
    wanted = set(template.places) - {INPUT}
    known = wanted | ({INPUT} if {INPUT, PROMPT} & set(template.places) else set())
    if (
        not isinstance(columns, dict)
        or not wanted <= columns.keys() <= known
        or not all(isinstance(each, str) for each in columns.values())
    ):
        return f"{_COLUMNS} of {name} is an object with a text for each of {', '.join(template.places)}"
    prompt = template.filled({INPUT: "", **columns})
    body[field] = [{"role": "user", "content": prompt}] if path == CHATS else prompt
    return ""


def mark_of(forms: str) -> str:
    """What tells a server from another at the same address: the name of its own folder, in which the file `forms` lies."""
    return os.path.basename(os.path.dirname(forms))


def _marked(send: Send, mark: bytes, idle_s: float) -> Send:
    async def marked(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = [(MARK.encode(), mark), (IDLE.encode(), f"{idle_s:.1f}".encode())]
            message = {**message, "headers": [*message.get("headers", ()), *own]}
        await send(message)

    return marked


def _spelled(pattern: str, body: dict[str, Any]) -> str:
    """A control token in texts of users and tools, which `tuneyard generate` reads as plain text: vLLM would read the token."""
    messages = body.get("messages")
    if not pattern or not isinstance(messages, list):
        return ""
    given = [each for each in messages if isinstance(each, dict) and each.get("role") not in _TRUSTED]
    found = re.search(pattern, json.dumps([given, body.get("tools")], ensure_ascii=False))
    return found[0] if found else ""


async def _content(receive: Receive) -> bytes | None:
    """The body of a request; None where it is too long."""
    parts, size = list[bytes](), 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b""
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > _MOST_BYTES:
            return None
        if not message.get("more_body"):
            return b"".join(parts)


def _replayed(content: bytes, receive: Receive) -> Receive:
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": content, "more_body": False}

    return again


def has_key(scope: Message, key: bytes) -> bool:
    """Whether a request brings the key, in the header of OpenAI's API."""
    scheme, _, given = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
    return scheme.lower() == b"bearer" and secrets.compare_digest(given, key)


_KINDS = {401: "AuthenticationError", 404: "NotFoundError", 503: "ServiceUnavailableError"}


async def refuse(send: Send, status: int, why: str, *, more: tuple[tuple[bytes, bytes], ...] = ()) -> None:
    """Answer with an error in the form of OpenAI's API. `more`: further headers."""
    kind = _KINDS.get(status, "BadRequestError")
    content = json.dumps({"error": {"message": why, "type": kind, "param": None, "code": status}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode()), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
