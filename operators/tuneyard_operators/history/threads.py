"""A few threads for blocking calls. A call that hangs holds one of them, and keeps neither the event loop nor the end of the process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")
_Call = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]


class Threads:
    """`count` threads, which start with the first call. They are daemons: the process ends even while a database hangs."""

    def __init__(self, name: str, count: int = 1) -> None:
        self._name = name
        self._count = count
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._threads: list[Thread] = []

    async def run(self, call: Callable[[], T]) -> T:
        """The result of `call`, or its exception. A caller that is cancelled does not end the call."""
        while len(self._threads) < self._count:
            self._threads.append(Thread(target=self._work, name=self._name, daemon=True))
            self._threads[-1].start()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._calls.put((loop, answer, call))
        return await answer

    def close(self, last: Callable[[], None] = lambda: None) -> None:
        """End the threads after the calls that they have been given, and after `last`."""
        if self._threads:
            loop = asyncio.get_running_loop()
            self._calls.put((loop, loop.create_future(), last))
        for _ in self._threads:
            self._calls.put(None)

    def _work(self) -> None:
        while (given := self._calls.get()) is not None:
            loop, answer, call = given
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - it is the caller's
                _tell(loop, answer, answer.set_exception, error)
            else:
                _tell(loop, answer, answer.set_result, result)


def _tell(loop: asyncio.AbstractEventLoop, answer: asyncio.Future[Any], end: Callable[[Any], None], value: Any) -> None:
    def settle() -> None:
        if not answer.done():
            end(value)

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:  # the loop is closed: the hub has ended
        return
