"""Reads the reply of an endpoint: an answer, a failure of one request, or a refusal of all requests. Pure.

Statuses are read as OpenAI documents them; other servers with this API (vLLM, llama.cpp, gateways) use the same ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from tuneyard.scoring.rows import UNPAID, Paid

_MOST_TOKENS = 2**31 - 1  # as the columns of the output hold
_SHOWN = 300
_FOR_LOAD = (429, 502, 503, 504, 529)
_PERMANENT = (401, 402, 403, 404, 405, 410, 501)
_ONCE_MORE = (408, 409, 425)
_NO_MONEY = ("insufficient_quota", "billing_not_active", "billing_hard_limit_reached")
"""Codes of a 429 that no pause heals."""
_TAG = re.compile(r"<(?:script|style)\b.{0,20000}?</(?:script|style)>|<[^<>]{0,2000}>", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Answered:
    """An answer. `input_tokens` None: the endpoint did not count."""

    text: str
    finish_reason: str
    input_tokens: int | None
    output_tokens: int
    paid: Paid
    vectors: tuple[tuple[float, ...], ...] | None = None
    """Embeddings, of an endpoint that was asked for them."""
    reasoning: str | None = None
    """Thoughts that the server has told apart from the text."""
    by_stop_text: bool = False
    """The answer ended at a stop text, which servers of vLLM tell."""


@dataclass(frozen=True)
class RowRefused:
    """The endpoint will never answer this request: the row has an error."""

    reason: str
    paid: Paid = UNPAID
    by_status: bool = False
    """The request itself was refused; perhaps all requests of this form are."""
    limit_field: bool = False
    """The request would do with another name for the limit of tokens."""


@dataclass(frozen=True)
class TryAgain:
    """A failure that another try may heal. `for_load`: it says nothing about the request: the endpoint refuses load, or is away.
    `reached`: there was a reply."""

    reason: str
    for_load: bool = False
    reached: bool = True
    retry_after_s: float | None = None
    paid: Paid = UNPAID


@dataclass(frozen=True)
class Refused:
    """No request will be answered. `next_step`: what a person can do."""

    reason: str
    next_step: str


Reply = Answered | RowRefused | TryAgain | Refused


def read_reply(status: int, headers: Mapping[str, str], body: bytes) -> Reply:
    """`body`: the whole body. `headers`: with any case of names."""
    if status == 200:
        return _read_answer(body)
    named = {name.lower(): value for name, value in headers.items()}
    said = f"HTTP {status}: {error_text(body)}"
    code = _error_code(body)
    if 300 <= status < 400:
        return Refused(f"it redirects to {printable(named.get('location', 'another address'))}", "set engine.endpoint.url to that address")
    if status in _PERMANENT or (status == 429 and code in _NO_MONEY):
        return Refused(said, _next_step(status))
    if status in _FOR_LOAD or status in _ONCE_MORE or status >= 500:
        return TryAgain(said, for_load=status in _FOR_LOAD, retry_after_s=_retry_after_s(named))
    if 400 <= status < 500:
        return RowRefused(said, by_status=True, limit_field="max_completion_tokens" in said)
    return TryAgain(said)


def _next_step(status: int) -> str:
    if status in (401, 403):
        return "give the job a valid key for this model in the variable that engine.endpoint.apiKeyVariable names"
    if status in (402, 429):
        return "the account has no credit or quota left: add some, then continue with --resume"
    return "check engine.endpoint.url (it usually ends in /v1), engine.endpoint.model, and data.chat: false for completions of plain text"


def _read_answer(body: bytes) -> Reply:
    try:
        values = json.loads(body)
        choice = values["choices"][0]
        message = choice.get("message")
        message = message if isinstance(message, dict) else {}
        text = choice.get("text") if "text" in choice else _joined(message.get("content"), "text")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return TryAgain(f"its reply is no answer: {error_text(body)}")
    paid, counted = _paid(values.get("usage"))
    reason = choice.get("finish_reason")
    if not isinstance(text, str):
        said = message.get("refusal") or _joined(message.get("content"), "refusal", only=False)
        if isinstance(said, str) and said:
            return RowRefused(f"the model refuses it: {printable(said)}", paid)
        if reason == "content_filter":
            return RowRefused("the endpoint filtered the answer (content_filter)", paid)
        if message.get("tool_calls"):
            return RowRefused("the model calls a tool and writes no text", paid)
        if reason == "length" or (reason == "stop" and _reasoning(message) is not None):
            text = ""  # a reasoning model said no more than its thoughts
        else:
            return TryAgain(f"its reply holds no text: {error_text(body)}", paid=paid)
    if reason == "content_filter":
        return RowRefused("the endpoint filtered the answer (content_filter)", paid)
    ended = "length" if reason == "length" else "stop"
    read, by_stop_text = paid.input_tokens if counted else None, isinstance(choice.get("stop_reason"), str)
    return Answered(whole(text), ended, read, paid.output_tokens, paid, reasoning=_reasoning(message), by_stop_text=by_stop_text)


def _reasoning(message: Mapping[str, Any]) -> str | None:
    """As DeepSeek, vLLM and SGLang name it, or OpenRouter and newer vLLM; or in parts of the content, as Mistral has it."""
    told = (*(message.get(name) for name in ("reasoning_content", "reasoning")), _joined(message.get("content"), "thinking", only=False))
    return next((whole(text) for text in told if isinstance(text, str) and text.strip()), None)


def _joined(content: Any, kind: str, *, only: bool = True) -> Any:
    """The texts of the parts of a kind, where contents are lists of parts. `only`: other contents are returned as they are."""
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        return content if only else None
    names = ("text", "output_text", None) if kind == "text" else (kind,)
    texts = [_joined(part.get(kind), "text") for part in content if part.get("type") in names]
    return "".join(texts) if texts and all(isinstance(text, str) for text in texts) else None


def _paid(usage: Any) -> tuple[Paid, bool]:
    if not isinstance(usage, dict):
        return Paid(unknown=1), False
    read, written = count_of(usage.get("prompt_tokens")), count_of(usage.get("completion_tokens"))
    if read is None or written is None:
        return Paid(read or 0, written or 0, unknown=1), read is not None
    return Paid(read, written), True


def count_of(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS else None


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds of Retry-After-Ms or Retry-After (RFC 9110, 10.2.3: seconds or a date); None: absent or no number of seconds."""
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * unit
        except (KeyError, ValueError):
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    try:
        at, now = parsedate_to_datetime(headers["retry-after"]), parsedate_to_datetime(headers["date"])
        return max(0.0, (at - now).total_seconds())
    except (KeyError, ValueError, TypeError, IndexError, OverflowError):
        return None


def _error(body: bytes) -> Any:
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        return None
    found = values.get("error", values) if isinstance(values, dict) else None
    return found if isinstance(found, dict | str) else None


def _error_code(body: bytes) -> str:
    error = _error(body)
    return str(error.get("code") or error.get("type") or "") if isinstance(error, dict) else ""


def error_text(body: bytes) -> str:
    """The message in an error's JSON, else the beginning of the text without tags of HTML."""
    error = _error(body)
    if isinstance(error, str):
        return printable(error)
    if isinstance(error, dict):
        for name in ("message", "detail"):
            if isinstance(error.get(name), str) and error[name]:
                return printable(error[name])
    text = body[: 64 * 1024].decode("utf-8", errors="replace")
    return printable(_TAG.sub(" ", text)) or "(nothing)"


def printable(text: str) -> str:
    """The beginning of `text` in one line, without characters that a terminal would obey."""
    line = "".join(character if character.isprintable() else " " for character in whole(text[: 8 * _SHOWN]))
    line = " ".join(line.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"


def whole(text: str) -> str:
    """`text` with halves of surrogate pairs replaced: no file can hold them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
