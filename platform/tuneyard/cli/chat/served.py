"""Who answers in a chat: a model behind OpenAI's API, such as one of `tuneyard serve`."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tuneyard.api import BadInput, JobFailed
from tuneyard.cli.chat.voices import Asked, Prompt, Write
from tuneyard.runtime.serve.ports import is_loopback

_CONNECT_S, _ANSWER_S = 10.0, 600.0
_AGAIN = "is it still running? `tuneyard serve` prints the address that it answers at"


class ServedVoices:
    """The models of a server. The base of an adapter is what the server calls its parent."""

    def __init__(self, url: str, name: str | None, key: str | None, *, chat: bool) -> None:
        """Ask the server for its models. `name`: the one that answers; None: the first. Raises BadInput where it has none of this name."""
        self._server, self._chat = _Server(url, key), chat
        self._parents = {str(each["id"]): each.get("parent") for each in self._server.models()}
        if not self._parents:
            raise BadInput(f"{self._server.url} serves no model", "give the address of another server")
        self.name = name or next(iter(self._parents))
        if self.name not in self._parents:
            raise BadInput(f"{self._server.url} serves no model {self.name}", f"give one of these: {', '.join(self._parents)}")

    def __str__(self) -> str:
        return f"{self.name} at {self._server.url}"

    def tuned(self) -> ServedVoice:
        return ServedVoice(self._server, self.name, self._chat)

    def base(self) -> ServedVoice:
        parent = self._parents[self.name]
        if parent not in self._parents:
            raise BadInput(f"{self._server.url} serves no base of {self.name}", "ask for an adapter, or serve the base beside the model")
        return ServedVoice(self._server, str(parent), self._chat)


@dataclass(frozen=True)
class ServedVoice:
    """One model of a server."""

    server: _Server
    name: str
    chats: bool

    def answer(self, prompt: Prompt, write: Write, asked: Asked) -> str:
        if asked.tools:
            raise BadInput("tools cannot be sent to a server", "leave --url out, so that the model is loaded here")
        body = {"model": self.name, "stream": True, "max_tokens": asked.max_tokens, "temperature": asked.temperature, "seed": asked.seed}
        said: list[str] = []
        for choice in self.server.stream(*_request(prompt, body)):
            piece = (choice.get("delta") or {}).get("content") if "delta" in choice else choice.get("text")
            if piece:
                write(piece)
                said.append(piece)
        return "".join(said)


def _request(prompt: Prompt, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    if isinstance(prompt, str):
        return "/completions", {**body, "prompt": prompt}
    return "/chat/completions", {**body, "messages": prompt}


class _Server:
    """OpenAI's API at a URL. The key is sent in the header Authorization alone."""

    def __init__(self, url: str, key: str | None) -> None:
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
            raise BadInput(f"--url {url} is no address of a server", "give one such as http://127.0.0.1:8000/v1")
        self.url = url.rstrip("/") if urlsplit(url).path.strip("/") else f"{url.rstrip('/')}/v1"
        self._headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}

    def models(self) -> list[dict[str, Any]]:
        with self._opened("/models", None, _CONNECT_S) as response:
            try:
                return list(json.load(response)["data"])
            except (ValueError, KeyError, TypeError) as error:
                raise BadInput(f"{self.url} does not answer as OpenAI's API does", _AGAIN) from error

    def stream(self, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The choices of an answer, as they come. Raises BadInput for a request that the server refuses, JobFailed where it breaks off."""
        with self._opened(path, json.dumps(body).encode(), _ANSWER_S) as response:
            try:
                for line in response:
                    text = line.decode().strip()
                    if not text.startswith("data:"):
                        continue
                    text = text.removeprefix("data:").strip()
                    if text == "[DONE]":
                        return
                    event = json.loads(text)
                    if "error" in event:
                        raise JobFailed(f"{self.url} ended the answer: {_message(event)}", _AGAIN)
                    yield from event.get("choices", [])[:1]
            except (OSError, ValueError, http.client.HTTPException) as error:
                raise JobFailed(f"the answer of {self.url} broke off: {type(error).__name__}", _AGAIN) from error
        raise JobFailed(f"the answer of {self.url} broke off", _AGAIN)

    def _opened(self, path: str, data: bytes | None, limit_s: float) -> http.client.HTTPResponse:
        request = urllib.request.Request(self.url + path, data, self._headers)
        try:
            no_proxy = [urllib.request.ProxyHandler({})] if is_loopback(urlsplit(self.url).hostname or "") else []
            response: http.client.HTTPResponse = urllib.request.build_opener(*no_proxy).open(request, timeout=limit_s)
        except urllib.error.HTTPError as error:
            with error:
                said = _refusal(error.read())
            advice = "give its key: --api-key, or TUNEYARD_API_KEY" if error.code in (401, 403) else "change the request as it says"
            raise BadInput(f"{self.url}{path} refuses ({error.code}): {said}", advice) from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise JobFailed(f"{self.url} does not answer: {reason}", _AGAIN) from error
        return response


def _refusal(content: bytes) -> str:
    try:
        return _message(json.loads(content))
    except ValueError:
        return content.decode(errors="replace").strip()[:300]


def _message(reply: Any) -> str:
    error = reply.get("error", reply) if isinstance(reply, dict) else reply
    return str(error.get("message", error) if isinstance(error, dict) else error)[:500]
