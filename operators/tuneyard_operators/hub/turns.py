"""A queue in which owners take turns: thousands of entries of one owner delay those of another by a single entry."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Turns(Generic[T]):
    """A deque for each owner, such as a namespace. The owner that took an entry last comes last."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[T]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def of(self, owner: str) -> int:
        """Number of waiting entries of an owner."""
        return len(self._waiting.get(owner, ()))

    def add(self, owner: str, entry: T) -> None:
        self._waiting.setdefault(owner, deque()).append(entry)
        self._count += 1

    def take(self, may: Callable[[str], bool] = lambda _owner: True) -> tuple[str, T] | None:
        """The next entry, of the first owner in turn that `may` take one, and this owner; None if no owner may."""
        owner = next(filter(may, self._waiting), None)
        if owner is None:
            return None
        own = self._waiting.pop(owner)
        entry = own.popleft()
        self._count -= 1
        if own:
            self._waiting[owner] = own  # behind all others
        return owner, entry

    def clear(self) -> None:
        self._waiting.clear()
        self._count = 0
