"""Events of the parts of a mixture. Each event names its part; a warning about the tokenizer, which all parts share, is emitted once."""

from __future__ import annotations

from dataclasses import replace

from tuneyard.data.report import NO_CHAT_TEMPLATE
from tuneyard.tracking import Emit, Event, Stage, Warned


class PartEvents:
    """`emit`: the `Emit` of the mixture. `of(name)`: the `Emit` of one part."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._said_of_all: set[str] = set()

    def of(self, name: str) -> Emit:
        def emit(event: Event) -> None:
            if isinstance(event, Stage):
                event = replace(event, name=f"{name}: {event.name}")
            elif isinstance(event, Warned) and event.message == NO_CHAT_TEMPLATE:
                if event.message in self._said_of_all:
                    return
                self._said_of_all.add(event.message)
            elif isinstance(event, Warned):
                event = replace(event, message=f"{name}: {event.message}")
            self._emit(event)

        return emit
