"""Quota, borrowing and fair share: what a team may still hold, and how much more than its share it has had."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tuneyard.federation.world import Running, Team, expected_end


@dataclass
class Account:
    """A team's holdings. `used_s`: GPU-seconds by SKU, decayed, as of `at`; `holds`: GPUs by SKU now."""

    team: Team
    holds: Counter[str] = field(default_factory=Counter)
    leaving: Counter[str] = field(default_factory=Counter)
    """GPUs by SKU, among those it holds, of attempts that have been asked to go."""
    attempts: dict[tuple[str, str], Running] = field(default_factory=dict)
    used_s: dict[str, float] = field(default_factory=dict)
    at: float = 0.0
    changed: int = 0
    """The number of the last change of what it holds."""
    waits: int = 0
    """Asks that wait."""


@dataclass(frozen=True)
class Room:
    """GPUs of a SKU that a team may still take, and what stands in the way of more."""

    gpus: float
    why: str


Limit = tuple[str, str]
"""What bounds a team: ("team", its name), its own quota with what it may borrow; ("cohort", name), the quota of its cohort."""


class Teams:
    """All teams; one that nobody has described has neither limit nor guarantee."""

    def __init__(self, half_life_s: float) -> None:
        self._half_life_s = half_life_s
        self._accounts: dict[str, Account] = {}
        self._cohort_quota: dict[tuple[str, str], int] = defaultdict(int)
        self._cohort_holds: Counter[tuple[str, str]] = Counter()
        self._cohorts: dict[str, set[str]] = defaultdict(set)
        self._grown: dict[str, int] = {}
        """Teams by the number of the last change by which they had more that could be taken back, the latest last."""
        self.changes = 0
        """How often what any team holds has changed."""
        self.version = 0
        """Changes with the teams themselves: what was said of "ever" is void then."""

    def __getitem__(self, name: str) -> Account:
        found = self._accounts.get(name)
        if found is None:
            found = self._accounts[name] = Account(Team(name=name))
        return found

    def set_team(self, team: Team) -> None:
        """Take in a team as it is now; its usage where it brings a later one than is known."""
        account = self[team.name]
        if _rules_of(account.team) != _rules_of(team):
            self.version += 1
        self._count_cohort(account, -1)
        account.team = team
        self._count_cohort(account, 1)
        if team.used_at > account.at or not account.used_s:
            account.used_s, account.at = dict(team.used_s), max(team.used_at, account.at)

    def hold(self, attempt: Running, now: float, sign: int = 1) -> None:
        """Count an attempt's GPUs as held (or not any more)."""
        account = self[attempt.team]
        self._settle(account, now)
        self.changes += 1
        account.changed = self.changes
        if sign > 0 and not attempt.stopping:
            self._grown.pop(attempt.team, None)
            self._grown[attempt.team] = self.changes
        account.holds[attempt.sku] += sign * attempt.gpus
        if attempt.stopping:
            account.leaving[attempt.sku] += sign * attempt.gpus
        if sign > 0:
            account.attempts[attempt.job, attempt.task] = attempt
        else:
            account.attempts.pop((attempt.job, attempt.task), None)
        if account.team.cohort:
            self._cohort_holds[account.team.cohort, attempt.sku] += sign * attempt.gpus

    def is_unlimited(self, name: str) -> bool:
        """Whether a team may take all GPUs there are."""
        team = self[name].team
        return team.quota is None and not team.closed

    def may_take(self, name: str, sku: str) -> float:
        """GPUs of a SKU that a team may still take. `room` adds the reason, and costs more."""
        if self[name].team.closed:
            return 0
        return min((self.left(limit, sku) for limit in self.limits(name)), default=math.inf)

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

    def limits(self, name: str) -> tuple[Limit, ...]:
        """What bounds a team; empty where it may take all there is."""
        team = self[name].team
        if team.quota is None:
            return ()
        own: tuple[Limit, ...] = (("team", name),) if team.borrowing else ()
        return (*own, ("cohort", team.cohort)) if team.cohort else own

    def left(self, limit: Limit, sku: str) -> float:
        """GPUs of a SKU that a limit lets be taken still; negative where more is held."""
        kind, name = limit
        if kind == "cohort":
            return self._cohort_quota[name, sku] - self._cohort_holds[name, sku]
        account = self[name]
        borrows = account.team.borrowing.get(sku)
        return math.inf if borrows is None else (account.team.quota or {}).get(sku, 0) + borrows - account.holds[sku]

    def gives_back(self, limit: Limit, sku: str, until: float, overrun_at: float = -math.inf) -> int:
        """GPUs under a limit whose attempts are predicted to end by then. What has overrun its prediction at `overrun_at` is thought to
        need as long again."""
        return sum(gpus for ends, gpus in self._ends(limit, sku) if expected_end(ends, overrun_at) <= until)

    def quota_start(self, name: str, sku: str, gpus: int, now: float) -> float | None:
        """When enough attempts are predicted to have ended for so many GPUs more; None where their end would not do."""
        start = now
        for limit in self.limits(name):
            left = self.left(limit, sku)
            for ends, given in self._ends(limit, sku) if left < gpus else ():
                left += given
                start = max(start, ends)
                if left >= gpus:
                    break
            if left < gpus:
                return None
        return start

    def deficits(self, name: str, sku: str, gpus: int) -> list[tuple[frozenset[str], int]]:
        """Of which teams how many GPUs of a SKU must become free before this one may take so many: what it lacks itself, what its cohort
        lacks, when those who have been asked to go have gone. Empty: it may. Nothing helps a team that is closed."""
        account = self[name]
        team = account.team
        if team.quota is None:
            return []
        found = []
        borrows = team.borrowing.get(sku)
        if borrows is not None:
            found.append((frozenset({name}), gpus + account.holds[sku] - account.leaving[sku] - team.quota.get(sku, 0) - borrows))
        if team.cohort:
            leaving = sum(self[other].leaving[sku] for other in self._cohorts[team.cohort])
            missing = gpus + self._cohort_holds[team.cohort, sku] - leaving - self._cohort_quota[team.cohort, sku]
            found.append((frozenset(self._cohorts[team.cohort]), missing))
        return [(teams, missing) for teams, missing in found if missing > 0]

    def gets_back(self, name: str, sku: str) -> bool:
        """Whether quota that a team may use is about to become free: something of it, or of its cohort, has been asked to go."""
        account = self[name]
        if account.team.quota is None:
            return False
        others = self._cohorts[account.team.cohort] if account.team.cohort else ()
        return account.leaving[sku] > 0 or any(self[other].leaving[sku] for other in others)

    def most(self, name: str, sku: str) -> float:
        """The most that a team may ever hold of a SKU at once."""
        team = self[name].team
        if team.quota is None:
            return math.inf
        borrows = team.borrowing.get(sku)
        own = math.inf if borrows is None else team.quota.get(sku, 0) + borrows
        return min(own, self._cohort_quota[team.cohort, sku]) if team.cohort else own

    def could_ever_run(self, name: str, least_by_sku: Mapping[str, int]) -> bool:
        """Whether quota and borrowing could ever allow a number of workers by SKU."""
        return any(self.most(name, sku) >= workers for sku, workers in least_by_sku.items())

    def would_borrow(self, name: str, skus: Iterable[str], gpus: int) -> bool:
        """Whether a team with a quota would borrow some of so many more GPUs on each of the SKUs."""
        return self[name].team.quota is not None and not any(self.within_quota(name, sku, gpus) for sku in skus)

    def within_quota(self, name: str, sku: str, gpus: int) -> bool:
        """Whether so many more GPUs would still be the team's own."""
        account = self[name]
        return account.team.quota is not None and account.holds[sku] + gpus <= account.team.quota.get(sku, 0)

    def borrowed(self, name: str, sku: str) -> int:
        """GPUs that it holds beyond its quota and has not been asked to give back; a team without a quota has borrowed all of them."""
        account = self[name]
        return max(0, account.holds[sku] - account.leaving[sku] - (account.team.quota or {}).get(sku, 0))

    def lends(self, owner: str, other: str) -> bool:
        """Whether an owner gets back what another holds beyond its quota. Whoever has no quota has borrowed from all."""
        return self[other].team.quota is None or self[owner].team.cohort == self[other].team.cohort

    def changed_at(self, name: str) -> int:
        """The number of the last change of what a team and its cohort hold."""
        account = self[name]
        cohort = self._cohorts.get(account.team.cohort) if account.team.cohort else None
        return max(self[other].changed for other in cohort) if cohort else account.changed

    def grown_since(self, change: int) -> Iterator[str]:
        """Teams that hold more since a change, by its number."""
        for name in reversed(self._grown):
            if self._grown[name] <= change:
                return
            yield name

    def shares(self, capacity: Mapping[str, int], now: float) -> dict[str, float]:
        """How often each team with work here has had its fair share of the resource that it uses most (DRF; Ghodsi et al., NSDI 2011),
        usage counting half after each half-life. 1: as much as its weight entitles it to among the teams that have work now. Of a team with
        a quota that alone counts which goes beyond it: its own is not held against it."""
        present = [account for account in self._accounts.values() if account.waits or any(account.holds.values())]
        weights = sum(account.team.weight for account in present) or 1.0
        whole_s = self._half_life_s / math.log(2)
        found: dict[str, float] = {}
        for account in present:
            self._settle(account, now)
            quota, fair = account.team.quota, account.team.weight / weights
            entitled = {sku: gpus * fair if quota is None else max(1, quota.get(sku, 0)) for sku, gpus in capacity.items() if gpus}
            used = ((amount, entitled.get(sku)) for sku, amount in account.used_s.items())
            share = max((amount / (whole_s * gpus) for amount, gpus in used if gpus), default=0.0)
            found[account.team.name] = share if quota is None else max(0.0, share - 1.0)
        return found

    def usage(self, name: str, now: float) -> dict[str, float]:
        """Decayed GPU-seconds by SKU, as of now."""
        account = self[name]
        self._settle(account, now)
        return dict(account.used_s)

    def set_usage(self, name: str, used_s: Mapping[str, float], at: float) -> None:
        """Put right what a team has used: decayed GPU-seconds by SKU, as of `at`."""
        account = self[name]
        account.used_s, account.at = dict(used_s), at

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

    def _ends(self, limit: Limit, sku: str) -> list[tuple[float, int]]:
        kind, name = limit
        accounts = [self[team] for team in self._cohorts[name]] if kind == "cohort" else [self[name]]
        return sorted((each.ends, each.gpus) for account in accounts for each in account.attempts.values() if each.sku == sku)

    def _count_cohort(self, account: Account, sign: int) -> None:
        team = account.team
        if team.cohort:
            (self._cohorts[team.cohort].add if sign > 0 else self._cohorts[team.cohort].discard)(team.name)
            for sku, quota in (team.quota or {}).items():
                self._cohort_quota[team.cohort, sku] += sign * quota
            for sku, gpus in account.holds.items():
                self._cohort_holds[team.cohort, sku] += sign * gpus


def _rules_of(team: Team) -> object:
    return team.quota, team.borrowing, team.cohort, team.closed
