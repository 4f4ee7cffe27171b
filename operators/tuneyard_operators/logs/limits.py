"""Limits concurrent queries: in total, and per storage, so that one slow storage cannot occupy the whole program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tuneyard_operators.logs.problems import Problem

AT_ONCE = 32
AT_ONCE_OF_A_STORAGE = 12
_RETRY_S = 1


class Limits:
    """Counts the queries under way. There is no queue: a query beyond a limit is refused (429)."""

    def __init__(self, at_once: int = AT_ONCE, of_a_storage: int = AT_ONCE_OF_A_STORAGE) -> None:
        self._at_once = at_once
        self._of_a_storage = of_a_storage
        self._total = 0
        self._by_storage: Counter[str] = Counter()

    @contextmanager
    def question(self) -> Iterator[None]:
        """Count one query while it runs. Raises Problem (429) beyond the limit."""
        if self._total >= self._at_once:
            raise Problem(429, f"the hub already reads {self._total} logs at this moment", retry_after_s=_RETRY_S)
        self._total += 1
        try:
            yield
        finally:
            self._total -= 1

    @contextmanager
    def of(self, storage: str) -> Iterator[None]:
        """Count one query to a storage while it runs. Raises Problem (429) beyond the limit of one storage."""
        if self._by_storage[storage] >= self._of_a_storage:
            raise Problem(429, f"the hub already waits for {self._by_storage[storage]} answers of {storage}", retry_after_s=_RETRY_S)
        self._by_storage[storage] += 1
        try:
            yield
        finally:
            self._by_storage[storage] -= 1
            if not self._by_storage[storage]:
                del self._by_storage[storage]
