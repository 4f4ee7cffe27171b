"""A right that was granted holds for some seconds, and for its own object alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tuneyard_operators.logs.front_proxy import Asker
from tuneyard_operators.logs.permissions import Permissions, log_right
from tuneyard_operators.logs.problems import Problem

ADA, EVE = (Asker(user=name, uid="", groups=(), extra=()) for name in ("ada", "eve"))


class Reviews:
    """Grants the log of `own` to everybody, and nothing else."""

    def __init__(self) -> None:
        self.asked = 0

    async def create(self, _kind: Any, _namespace: Any, review: dict[str, Any]) -> dict[str, Any]:
        self.asked += 1
        return {"status": {"allowed": review["spec"]["resourceAttributes"].get("name") == "own"}}


def test_a_grant_is_of_one_object_and_one_reader_for_ten_seconds() -> None:
    now, reviews = [100.0], Reviews()
    permissions = Permissions(reviews, clock=lambda: now[0])  # type: ignore[arg-type]

    def check(asker: Asker, name: str) -> None:
        asyncio.run(permissions.check(asker, log_right("maps", name)))

    check(ADA, "own")
    check(ADA, "own")
    assert reviews.asked == 1
    with pytest.raises(Problem):
        check(ADA, "other")
    check(EVE, "own")
    now[0] += 11.0
    check(ADA, "own")
    assert reviews.asked == 4
