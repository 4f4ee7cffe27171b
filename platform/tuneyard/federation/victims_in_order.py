"""Victims by priority and age, whatever they lose: the choice of Kueue and of Slurm, beside the cheapest set (`victims`).

Candidates go one after another until there is room; then those that turn out not to be needed stay, the last first (Kueue's
`minimalPreemptions`).
"""

from __future__ import annotations

from tuneyard.federation.victims import Going, Search, Victims
from tuneyard.federation.world import PRIORITIES, Running


def youngest_victims(search: Search) -> Victims | None:
    """The legal set that makes room: borrowers that give back first, then the lowest priority, then the latest start. None where the
    candidates in this order make no room."""

    def order(attempt: Running) -> tuple[bool, int, float, str, str]:
        return attempt.key not in search.taken_back, PRIORITIES[attempt.priority], -attempt.started, attempt.job, attempt.task

    going = Going(search)
    for attempt in sorted(search.candidates, key=order):
        if going.makes_room():
            break
        going.add(attempt)
        if not going.is_legal():
            going.drop(attempt)
    if not going.makes_room():
        return None
    for attempt in reversed(going.attempts):
        going.drop(attempt)
        if not going.makes_room():
            going.add(attempt)
    return Victims(tuple(going.attempts), search.cost_of(going.attempts))
