"""Whole numbers that a module keeps, such as its number of heads, of which a rank has a share.

A forward that reshapes to a number of heads that its module keeps does not run with a rank's heads. There the numbers of the module are
divided on trial, one by one and in pairs. A division is taken only if the model's own code, run with a rank's shapes, then follows the
proof further than without it. Names of attributes are no evidence, and a plan with divisions is proven like every other plan.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn

from tuneyard.parallel.modules import pattern
from tuneyard.parallel.propagation import ExpertLayout, Layouts
from tuneyard.parallel.recording import Recording
from tuneyard.parallel.replay import Departure, replayed

Divisions = Mapping[str, frozenset[str]]
"""Module (as pattern) -> the attributes of it that are divided by the degree."""
_MOST_TRIALS = 200
_MARGIN = 100
"""Operations after the end of a call that a trial still runs: copies make a rank's pass longer than the whole one."""


@contextmanager
def divided(model: nn.Module, divisions: Divisions, degree: int) -> Iterator[None]:
    """The model with a rank's share of the numbers."""
    owners = [(module, divisions[pattern(name)]) for name, module in model.named_modules() if pattern(name) in divisions]
    was = [(vars(module), dict(vars(module))) for module, _ in owners]
    try:
        for module, names in owners:
            divide(module, names, degree)
        yield
    finally:
        for held, before in was:
            held.update(before)


def divide(module: nn.Module, names: Iterable[str], degree: int) -> None:
    """Give a module its rank's share of its own numbers, and of those that it reads from its configuration."""
    held = vars(module)
    read: dict[str, Any] = {}
    for name in names:
        value = share(number_of(module, name), degree)
        if name.startswith(_CONFIG):
            read[name.removeprefix(_CONFIG)] = value
        else:
            held[name] = value
    if read:
        held["config"] = ConfigOnRank(held["config"], read)


def number_of(module: nn.Module, name: str) -> Any:
    """A number of a module, or of its configuration; None if it has none of this name."""
    held = vars(module)
    if name.startswith(_CONFIG):
        return getattr(held.get("config"), "__dict__", {}).get(name.removeprefix(_CONFIG))
    return held.get(name)


class ConfigOnRank:
    """A configuration as one module of a rank sees it: that of the model, but for a few numbers. What is set on it is set there."""

    def __init__(self, config: Any, numbers: Mapping[str, Any]) -> None:
        vars(self).update(_config=config, _numbers=dict(numbers))

    def __getattr__(self, name: str) -> Any:
        if name in ("_config", "_numbers"):  # while a copy is being made
            raise AttributeError(name)
        return self._numbers[name] if name in self._numbers else getattr(self._config, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._config, name, value)


_CONFIG = "config."


def share(value: Any, degree: int) -> Any:
    """A rank's share of a whole number, or of each of several."""
    return value // degree if isinstance(value, int) else type(value)(each // degree for each in value)


def is_divisible(value: Any, degree: int) -> bool:
    """Whether a value is a whole number, or a list or tuple of such, that the degree divides."""
    if type(value) in (list, tuple):
        return bool(value) and all(is_divisible(each, degree) and type(each) is int for each in value)
    return type(value) is int and value > 0 and value % degree == 0


def division_of(
    model: nn.Module,
    whole: Recording,
    found: Layouts,
    experts: Mapping[str, ExpertLayout],
    degree: int,
    divisions: Divisions,
    departure: Departure,
) -> Divisions | None:
    """The divisions, with more attributes, under which the forward pass follows the proof to the end of the call that departs. None if no
    attributes of the module that departs, and none of the modules around it, make it so.

    The trial that gets furthest is extended first, since the first number that helps may be the wrong one.
    """
    end = _end_of_call(whole, departure)
    left, count = _MOST_TRIALS, itertools.count()
    for module, most in _around(departure.module):
        tried: list[tuple[int, int, Divisions]] = [(-departure.position, next(count), divisions)]
        while tried:
            before, _, start = heapq.heappop(tried)
            for proposals in _proposals(model, pattern(module), start, degree, most):
                left -= len(proposals)
                if left < 0:
                    return None
                reached = [_reached(model, whole, found, experts, degree, each, end + _MARGIN) for each in proposals]
                if reached and max(reached) >= end:
                    return proposals[reached.index(max(reached))]
                better = [(-at, next(count), each) for at, each in zip(reached, proposals, strict=True) if at > -before]
                for each in better:
                    heapq.heappush(tried, each)
                if better:
                    break
    return None


def _around(module: str) -> Iterator[tuple[str, int]]:
    """The module and those around it, without the model itself; and how many of its numbers are divided at once. Only the module itself
    may read its configuration.
    """
    most = 2
    while module:
        yield module, most
        module, most = module.rpartition(".")[0], 1


def _reached(
    model: nn.Module,
    whole: Recording,
    found: Layouts,
    experts: Mapping[str, ExpertLayout],
    degree: int,
    divisions: Divisions,
    limit: int,
) -> int:
    """The first event at which a pass with these divisions departs from the proof."""
    try:
        with divided(model, divisions, degree):
            replayed(model, whole, found, experts, degree, limit=limit)
    except Departure as departure:
        return departure.position
    return len(whole.events)


def _proposals(model: nn.Module, key: str, start: Divisions, degree: int, most: int) -> Iterator[list[Divisions]]:
    """More attributes of the modules of a pattern that the degree divides: of their own and of their configuration, one by one, and then
    pairs of their own.
    """
    modules = [module for name, module in model.named_modules() if pattern(name) == key]
    held = vars(modules[0]) if modules else {}
    taken = start.get(key, frozenset())
    configured = getattr(held.get("config"), "__dict__", ()) if most > 1 else ()
    own, read = (
        [name for name in names if name not in taken and all(is_divisible(number_of(module, name), degree) for module in modules)]
        for names in (held, [f"{_CONFIG}{name}" for name in configured])
    )
    yield [{**start, key: taken | {name}} for name in (*own, *read)]
    if most > 1:
        yield [{**start, key: taken | set(pair)} for pair in itertools.combinations(own, 2)]


def _end_of_call(whole: Recording, departure: Departure) -> int:
    """The event after the call in which the pass departs."""
    ends = [call.stop for call in whole.calls.get(departure.module, []) if call.start <= departure.position < call.stop]
    return ends[-1] if ends else departure.position


__all__ = ["Divisions", "divide", "divided", "division_of", "is_divisible", "number_of"]
