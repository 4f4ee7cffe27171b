"""Quota, borrowing and fair share: what a team may still hold, and how much more than its share it has had."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from tuneyard.federation.world import Running, Team


@dataclass
class Account:
    """A team's holdings. `used_s`: GPU-seconds by SKU, decayed, as of `at`; `holds`: GPUs by SKU now."""

    team: Team
    holds: Counter[str] = field(default_factory=Counter)
    used_s: dict[str, float] = field(default_factory=dict)
    at: float = 0.0
    waits: int = 0
    """Asks that wait."""


@dataclass(frozen=True)
class Room:
    """GPUs of a SKU that a team may still take, and what stands in the way of more."""

    gpus: float
    why: str


class Teams:
    """All teams; one that nobody has described has neither limit nor guarantee."""

    def __init__(self, half_life_s: float) -> None:
        self._half_life_s = half_life_s
        self._accounts: dict[str, Account] = {}
        self._cohort_quota: dict[tuple[str, str], int] = defaultdict(int)
        self._cohort_holds: Counter[tuple[str, str]] = Counter()

    def __getitem__(self, name: str) -> Account:
        found = self._accounts.get(name)
        if found is None:
            found = self._accounts[name] = Account(Team(name=name))
        return found

    def set_team(self, team: Team) -> None:
        """Take in a team as it is now; its usage where it brings a later one than is known."""
        account = self[team.name]
        self._count_cohort(account, -1)
        account.team = team
        self._count_cohort(account, 1)
        if team.used_at > account.at or not account.used_s:
            account.used_s, account.at = dict(team.used_s), max(team.used_at, account.at)

    def hold(self, attempt: Running, now: float, sign: int = 1) -> None:
        """Count an attempt's GPUs as held (or not any more)."""
        account = self[attempt.team]
        self._settle(account, now)
        account.holds[attempt.sku] += sign * attempt.gpus
        if account.team.cohort:
            self._cohort_holds[account.team.cohort, attempt.sku] += sign * attempt.gpus

    def room(self, name: str, sku: str) -> Room:
        """What a team may still take of a SKU."""
        account = self[name]
        team = account.team
        if team.closed:
            return Room(0, team.closed)
        if team.quota is None:
            return Room(math.inf, "")
        quota, holds = team.quota.get(sku, 0), account.holds[sku]
        borrows = team.borrowing.get(sku)
        own = math.inf if borrows is None else quota + borrows - holds
        why = f"team {name} holds {holds} {sku} of a quota of {quota}" + (f" and {borrows} that it may borrow" if borrows else "")
        if team.cohort:
            total = self._cohort_quota[team.cohort, sku]
            left = total - self._cohort_holds[team.cohort, sku]
            if left < own:
                return Room(left, f"the teams of cohort {team.cohort} hold {total - left} of their {total} {sku}")
        return Room(own, why)

    def deficits(self, name: str, sku: str, gpus: int) -> list[tuple[frozenset[str], int]]:
        """Of which teams how many GPUs of a SKU must become free before this one may take so many: what it lacks itself, what its cohort
        lacks. Empty: it may. Nothing helps a team that is closed."""
        account = self[name]
        team = account.team
        if team.quota is None:
            return []
        found = []
        borrows = team.borrowing.get(sku)
        if borrows is not None:
            found.append((frozenset({name}), gpus + account.holds[sku] - team.quota.get(sku, 0) - borrows))
        if team.cohort:
            members = frozenset(other.team.name for other in self._accounts.values() if other.team.cohort == team.cohort)
            found.append((members, gpus + self._cohort_holds[team.cohort, sku] - self._cohort_quota[team.cohort, sku]))
        return [(teams, missing) for teams, missing in found if missing > 0]

    def most(self, name: str, sku: str) -> float:
        """The most that a team may ever hold of a SKU at once."""
        team = self[name].team
        if team.quota is None:
            return math.inf
        borrows = team.borrowing.get(sku)
        own = math.inf if borrows is None else team.quota.get(sku, 0) + borrows
        return min(own, self._cohort_quota[team.cohort, sku]) if team.cohort else own

    def within_quota(self, name: str, sku: str, gpus: int) -> bool:
        """Whether so many more GPUs would still be the team's own."""
        account = self[name]
        return account.team.quota is not None and account.holds[sku] + gpus <= account.team.quota.get(sku, 0)

    def borrowed(self, name: str, sku: str) -> int:
        """GPUs that it holds beyond its quota; a team without a quota has borrowed all of them."""
        account = self[name]
        return max(0, account.holds[sku] - (account.team.quota or {}).get(sku, 0))

    def lend_to_each_other(self, one: str, other: str) -> bool:
        return self[one].team.cohort == self[other].team.cohort

    def shares(self, capacity: Mapping[str, int], now: float) -> dict[str, float]:
        """How often each team with work here has had its fair share of the resource that it uses most (DRF; Ghodsi et al., NSDI 2011),
        usage counting half after each half-life. 1: as much as its weight entitles it to among the teams that have work now."""
        present = [account for account in self._accounts.values() if account.waits or any(account.holds.values())]
        weights = sum(account.team.weight for account in present) or 1.0
        whole_s = self._half_life_s / math.log(2)
        found: dict[str, float] = {}
        for account in present:
            self._settle(account, now)
            dominant = max((used / (whole_s * capacity[sku]) for sku, used in account.used_s.items() if capacity.get(sku)), default=0.0)
            found[account.team.name] = dominant * weights / account.team.weight
        return found

    def usage(self, name: str, now: float) -> dict[str, float]:
        """Decayed GPU-seconds by SKU, as of now."""
        account = self[name]
        self._settle(account, now)
        return dict(account.used_s)

    def all(self) -> list[Account]:
        return list(self._accounts.values())

    def _settle(self, account: Account, now: float) -> None:
        """Bring decayed usage up to now, exactly: what is held all the while adds GPUs x the integral of the decay."""
        passed = now - account.at
        if passed <= 0:
            return
        kept = 0.5 ** (passed / self._half_life_s)
        whole_s = self._half_life_s / math.log(2)
        for sku in {*account.used_s, *(sku for sku, gpus in account.holds.items() if gpus)}:
            account.used_s[sku] = account.used_s.get(sku, 0.0) * kept + account.holds[sku] * whole_s * (1 - kept)
        account.at = now

    def _count_cohort(self, account: Account, sign: int) -> None:
        team = account.team
        if team.cohort:
            for sku, quota in (team.quota or {}).items():
                self._cohort_quota[team.cohort, sku] += sign * quota
            for sku, gpus in account.holds.items():
                self._cohort_holds[team.cohort, sku] += sign * gpus
