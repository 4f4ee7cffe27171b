"""The harness's process: errors that people can act on."""

from __future__ import annotations


class Unusable(Exception):
    """Tasks that cannot be scored: the cause, and the next step."""

    def __init__(self, cause: str, next_step: str) -> None:
        super().__init__(cause, next_step)
        self.cause, self.next_step = cause, next_step
