"""What a receiver of spans may answer: a whole answer of 2xx, within limits of time and length."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

_MOST_ANSWER = 64 * 1024
"""Bytes of an answer that are read: a receiver of OTLP answers with a few."""


def answer_check(limit_s: float) -> Callable[..., None]:
    """A hook that reads an answer before requests does, within limits, and raises what is wrong with it: the exporter takes 3xx for 2xx."""

    def check(response: Any, *_: object, **__: object) -> None:
        read, status = 0, response.status_code
        end = time.monotonic() + limit_s
        try:
            if 300 <= status < 400:
                raise OSError(f"{_place(response.url)} answered {status}: redirects are not followed; set the endpoint itself")
            while status < 300 and response.raw.read(1, decode_content=False):  # a longer read waits for all its bytes
                read += 1
                if read > _MOST_ANSWER:
                    raise OSError(f"the answer of {_place(response.url)} is longer than {_MOST_ANSWER} bytes")
                if time.monotonic() > end:
                    raise OSError(f"the answer of {_place(response.url)} did not end within {limit_s:g} s")
        except BaseException:
            response.close()
            raise
        if status >= 300:
            response.close()  # the status is all that counts

    return check


def _place(url: str) -> str:
    """An endpoint without credentials: neither a user nor a query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
