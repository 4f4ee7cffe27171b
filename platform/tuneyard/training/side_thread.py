"""Work in a thread of its own, for a caller that has to do something while it lasts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch

Made = TypeVar("Made")


class SideThread(Generic[Made]):
    """Runs `work` at once. The thread does not keep the process alive."""

    def __init__(self, work: Callable[[], Made], device: Any = None) -> None:
        """`device`: a GPU that `work` finds as the current one; each thread has its own."""
        self._work, self._device = work, device
        self._made: list[Made] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="tuneyard-side", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            if self._device is not None and self._device.type == "cuda":
                torch.cuda.set_device(self._device)
            self._made.append(self._work())
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            self._error = error

    def wait(self, seconds: float) -> bool:
        """Whether the work has ended, after at most so many seconds."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def result(self) -> Made:
        """What the work returned. Raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._made[0]
