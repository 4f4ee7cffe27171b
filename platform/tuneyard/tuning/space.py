"""The search space of a tuner: settings, the values of each, and a mask of legal combinations."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

import numpy as np

from tuneyard.api import BadInput

Point = Mapping[str, Hashable]
"""A value for each setting of a space."""
Key = tuple[int, ...]
"""A point as indices of its values, in the order of the space's settings."""


def _anything(_: Point) -> bool:
    return True


@dataclass(frozen=True)
class Space:
    """The cross product of the settings' values, restricted to combinations that `legal` accepts (the planner's mask)."""

    settings: Mapping[str, Sequence[Any]]
    """Values of each setting, without duplicates; ordered if they have an order."""
    legal: Callable[[Point], bool] = field(default=_anything)

    def __post_init__(self) -> None:
        """Raises BadInput for a space without settings, and for a setting without values or with a duplicate."""
        if not self.settings:
            raise BadInput("there is nothing to tune: the search space has no setting", "name at least one setting with its values")
        for name, values in self.settings.items():
            if not values:
                raise BadInput(f"{name} has no value to choose from", f"give {name} at least one value, or leave it out")
            if len(set(values)) < len(values):
                raise BadInput(f"{name} has a value twice", f"name each value of {name} once")

    @property
    def size(self) -> int:
        """Number of combinations, legal or not."""
        return prod(len(values) for values in self.settings.values())

    def point(self, key: Key) -> dict[str, Any]:
        return {name: values[index] for (name, values), index in zip(self.settings.items(), key, strict=True)}

    def key(self, point: Point) -> Key:
        """The indices of a point's values. Raises BadInput for a point outside of this space."""
        try:
            return tuple(list(values).index(point[name]) for name, values in self.settings.items())
        except (KeyError, ValueError) as error:
            raise BadInput(f"{dict(point)} is not a point of the search space", f"choose from {dict(self.settings)}") from error

    def has(self, point: Point) -> bool:
        """Whether a point is in this space, and legal."""
        named = point.keys() == self.settings.keys() and all(point[name] in values for name, values in self.settings.items())
        return named and self.legal(point)

    def legal_keys(self, rng: np.random.Generator, most: int = 20_000) -> np.ndarray:
        """Keys of legal points: all of them if there are at most `most` combinations, else a random part. Shape (points, settings).

        Raises BadInput if none is found. The mask, not the space, knows the smallest change that would help.
        """
        found = [key for key in self._candidates(rng, most) if self.legal(self.point(key))]
        if not found:
            raise self._nothing()
        return np.array(found, dtype=int)

    def unused(self, rng: np.random.Generator, most: int = 20_000) -> list[tuple[str, Any]]:
        """Settings with each value that no legal point has. Empty for more than `most` combinations, which are not all looked at. Raises
        BadInput if no point is legal.
        """
        if self.size > most:
            return []
        used = self.legal_keys(rng, most)
        return [
            (name, value)
            for at, (name, values) in enumerate(self.settings.items())
            for index, value in enumerate(values)
            if not (used[:, at] == index).any()
        ]

    def check(self, rng: np.random.Generator, most: int = 20_000) -> None:
        """Raises BadInput if `legal_keys` would find no legal point."""
        if not any(self.legal(self.point(key)) for key in self._candidates(rng, most)):
            raise self._nothing()

    def _nothing(self) -> BadInput:
        return BadInput(
            f"no combination of {', '.join(self.settings)} can work",
            "allow more values (a smaller micro-batch, a higher ZeRO stage, offload), or a larger GPU",
        )

    def _candidates(self, rng: np.random.Generator, most: int) -> Iterator[Key]:
        ranges = [range(len(values)) for values in self.settings.values()]
        if self.size <= most:
            yield from product(*ranges)
            return
        drawn = np.stack([rng.integers(len(r), size=most) for r in ranges], axis=1)
        yield from dict.fromkeys(tuple(int(i) for i in key) for key in drawn)
