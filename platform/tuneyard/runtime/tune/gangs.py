"""The gangs of a search, and runs on several of them side by side.

One process conducts all gangs. It alone hands out points and writes trials.json, so that no claim on a trial outlives its gang: what a
killed search was measuring is measured again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

from tuneyard.runtime.train.attempt import TrainSetting
from tuneyard.tracking import Emit, Event
from tuneyard.tuning import Trial

Run = Callable[[], Trial | None]
"""Measures one point. None after a request to stop. Raises TuneyardError for a failure that says nothing about settings."""
Prepare = Callable[[int, Mapping[str, Any], int, float | None], Run]
"""Prepares a run: gang, point, number, and seconds that the settings of the file took (None: not known yet)."""


def settings_of_gangs(setting: TrainSetting, count: int, workers: int) -> list[TrainSetting]:
    """A setting for each of `count` gangs of so many workers. The first has the gang that the job keeps from task to task."""
    setting = replace(setting, beside=(count - 1) * workers)
    return [setting, *(replace(setting, gangs=setting.machines.gangs.another(f"gang-{number}")) for number in range(2, count + 1))]


@dataclass(frozen=True)
class _Ended:
    gang: int
    trial: Trial | None = None
    error: BaseException | None = None


class SideBySide:
    """See `tuning.search.TrialGangs`. `settings`: one for each gang. One gang measures in the thread of the search, several in threads of
    their own.

    A context: at its end, runs that have not ended are stopped, and gangs beside the first are released.
    """

    def __init__(self, settings: Sequence[TrainSetting], emit: Emit) -> None:
        self.count = len(settings)
        self._settings, self._emit = settings, emit
        self._prepare: Prepare | None = None
        self._own = threading.current_thread()
        self._told: SimpleQueue[Event | _Ended] = SimpleQueue()
        self._prepared: Run | None = None
        self._running = 0
        self._given_up = threading.Event()

    def emit(self, event: Event) -> None:
        """Pass on an event in the thread of the search: listeners and recorders know one thread."""
        if threading.current_thread() is self._own:
            self._emit(event)
        else:
            self._told.put(event)

    @property
    def is_given_up(self) -> bool:
        """Whether the search has ended, so that all runs must stop."""
        return self._given_up.is_set()

    def running(self, prepare: Prepare) -> Self:
        """This context, with the function that prepares its runs."""
        self._prepare = prepare
        return self

    def __enter__(self) -> Self:
        return self

    def start(self, gang: int, point: Mapping[str, Any], number: int, first_s: float | None) -> None:
        assert self._prepare is not None
        run = self._prepare(gang, point, number, first_s)
        self._running += 1
        if self.count == 1:
            self._prepared = run
        else:
            threading.Thread(target=self._run, args=(gang, run), name=f"tuneyard-search-{gang + 1}", daemon=True).start()

    def ended(self) -> tuple[int, Trial | None]:
        """Raises the error of the run, if it has one."""
        ended = self._next() if self._prepared is None else self._run_here(self._prepared)
        if ended.error is not None:
            raise ended.error
        return ended.gang, ended.trial

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._given_up.set()
        if self._prepared is None and (kind is None or issubclass(kind, Exception)):  # a second Ctrl-C waits for nothing
            while self._running:
                self._next()
        for setting in self._settings[1:]:
            setting.held.release()

    def _run_here(self, run: Run) -> _Ended:
        self._prepared = None
        self._running -= 1
        return _Ended(0, run())

    def _run(self, gang: int, run: Run) -> None:
        try:
            ended = _Ended(gang, run())
        except BaseException as error:  # noqa: BLE001 - `ended` raises it in the thread of the search
            ended = _Ended(gang, error=error)
        self._told.put(ended)

    def _next(self) -> _Ended:
        """The next run that ends. Passes on all events before."""
        while True:
            told = self._told.get()
            if isinstance(told, _Ended):
                self._running -= 1
                return told
            self._emit(told)
