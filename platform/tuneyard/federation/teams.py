"""Quota, borrowing and fair share of teams: the GPUs that a team may still take, and its usage relative to its share."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tuneyard.federation.world import PRIORITIES, Running, Team, expected_end


@dataclass
class Account:
    """The GPUs of a team. `holds`: GPUs by SKU now. `used_s`: decayed GPU-seconds by SKU, as of `at`."""

    team: Team
    holds: Counter[str] = field(default_factory=Counter)
    leaving: Counter[str] = field(default_factory=Counter)
    """GPUs by SKU of its stopping attempts. `holds` counts them too."""
    attempts: dict[tuple[str, str], Running] = field(default_factory=dict)
    used_s: dict[str, float] = field(default_factory=dict)
    at: float = 0.0
    changed: int = 0
    """The number of the last change of its GPUs."""
    waits: int = 0
    """The number of its waiting asks."""


@dataclass(frozen=True)
class Room:
    """GPUs of a SKU that a team may still take, and the limit that allows no more."""

    gpus: float
    why: str


Limit = tuple[str, str]
"""A limit of a team: ("team", name), its quota and borrowing limit; or ("cohort", name), the quota of its cohort."""


class Teams:
    """All teams. A team without an object has neither limit nor guarantee."""

    def __init__(self, half_life_s: float) -> None:
        self._half_life_s = half_life_s
        self._accounts: dict[str, Account] = {}
        self.with_quota: set[str] = set()
        """Names of the teams that have a quota."""
        self._cohort_quota: dict[tuple[str, str], int] = defaultdict(int)
        self._cohort_holds: Counter[tuple[str, str]] = Counter()
        self._cohorts: dict[str, set[str]] = defaultdict(set)
        self._grown: dict[str, int] = {}
        """Teams by the number of the last change that added GPUs which can be reclaimed, the latest last."""
        self.changes = 0
        """The number of changes of any team's GPUs."""
        self.version = 0
        """The number of changes of quotas, cohorts and budgets. Infeasible asks are judged again after each."""

    def __getitem__(self, name: str) -> Account:
        found = self._accounts.get(name)
        if found is None:
            found = self._accounts[name] = Account(Team(name=name))
        return found

    def set_team(self, team: Team) -> None:
        """Set a team. Its usage is taken where it is later than the known usage."""
        account = self[team.name]
        if _rules_of(account.team) != _rules_of(team):
            self.version += 1
        self._count_cohort(account, -1)
        account.team = team
        self._count_cohort(account, 1)
        (self.with_quota.discard if team.quota is None else self.with_quota.add)(team.name)
        if team.used_at > account.at or not account.used_s:
            account.used_s, account.at = dict(team.used_s), max(team.used_at, account.at)

    def hold(self, attempt: Running, now: float, sign: int = 1) -> None:
        """Add an attempt's GPUs to its team, or remove them (`sign` -1)."""
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
        """GPUs of a SKU that a team may still take."""
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
        """The limits of a team. Empty: it may take all GPUs."""
        team = self[name].team
        if team.quota is None:
            return ()
        own: tuple[Limit, ...] = (("team", name),) if team.borrowing else ()
        return (*own, ("cohort", team.cohort)) if team.cohort else own

    def left(self, limit: Limit, sku: str) -> float:
        """GPUs of a SKU that a limit still allows. Negative where teams hold more than the limit."""
        kind, name = limit
        if kind == "cohort":
            return self._cohort_quota[name, sku] - self._cohort_holds[name, sku]
        account = self[name]
        borrows = account.team.borrowing.get(sku)
        return math.inf if borrows is None else (account.team.quota or {}).get(sku, 0) + borrows - account.holds[sku]

    def gives_back(self, limit: Limit, sku: str, until: float, now: float) -> int:
        """GPUs under a limit of attempts that are expected to end by `until`."""
        return sum(gpus for ends, gpus in self._ends(limit, sku) if expected_end(ends, now) <= until)

    def limit_start(self, limit: Limit, sku: str, gpus: int, now: float) -> float | None:
        """When a limit is expected to allow `gpus` more GPUs, after attempts have ended. None: too few GPUs become free."""
        start, left = now, self.left(limit, sku)
        for end, given in sorted((expected_end(ends, now), given) for ends, given in self._ends(limit, sku)) if left < gpus else ():
            start, left = max(start, end), left + given
            if left >= gpus:
                break
        return start if left >= gpus else None

    def deficits(self, name: str, sku: str, gpus: int) -> list[tuple[frozenset[str], int]]:
        """GPUs to reclaim per borrowing group of teams so that a team can start `gpus` more GPUs of a SKU: for its own limit, and for that
        of its cohort. Stopping attempts count as gone. Empty: nothing is lacking. A closed team gets no help by it."""
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
        """Whether quota that a team may use becomes free soon: an attempt of the team or of its cohort is stopping."""
        account = self[name]
        if account.team.quota is None:
            return False
        others = self._cohorts[account.team.cohort] if account.team.cohort else ()
        return account.leaving[sku] > 0 or any(self[other].leaving[sku] for other in others)

    def most(self, name: str, sku: str) -> float:
        """The most GPUs of a SKU that a team may ever hold at once."""
        team = self[name].team
        if team.quota is None:
            return math.inf
        borrows = team.borrowing.get(sku)
        own = math.inf if borrows is None else team.quota.get(sku, 0) + borrows
        return min(own, self._cohort_quota[team.cohort, sku]) if team.cohort else own

    def could_ever_run(self, name: str, least_by_sku: Mapping[str, int]) -> bool:
        """Whether quota and borrowing could ever allow the least number of workers of any SKU."""
        return any(self.most(name, sku) >= workers for sku, workers in least_by_sku.items())

    def would_borrow(self, name: str, skus: Iterable[str], gpus: int) -> bool:
        """Whether a team with a quota would borrow some of `gpus` more GPUs, on each of the SKUs."""
        return not any(self.within_quota(name, sku, gpus) for sku in skus)

    def within_quota(self, name: str, sku: str, gpus: int) -> bool:
        """Whether a team stays within its own quota with `gpus` more GPUs."""
        account = self[name]
        return account.team.quota is not None and account.holds[sku] + gpus <= account.team.quota.get(sku, 0)

    def borrowed(self, name: str, sku: str) -> int:
        """GPUs beyond a team's quota, without stopping attempts. A team without a quota borrows all its GPUs."""
        account = self[name]
        return max(0, account.holds[sku] - account.leaving[sku] - (account.team.quota or {}).get(sku, 0))

    def lends(self, owner: str, other: str) -> bool:
        """Whether an owner may reclaim GPUs that another team borrows. A team without a quota borrows from all teams."""
        return self[other].team.quota is None or self[owner].team.cohort == self[other].team.cohort

    def has_lent(self, owner: str, sku: str, priority: str) -> bool:
        """Whether other teams borrow GPUs by attempts that asks of an owner, of a priority, may preempt."""
        others = [name for name, account in self._accounts.items() if name != owner and account.holds[sku]]
        borrowers = [self[other] for other in others if self.lends(owner, other) and self.borrowed(other, sku) > 0]
        attempts = [each for account in borrowers for each in account.attempts.values() if each.sku == sku]
        return any(each.preemptible and not each.stopping and PRIORITIES[each.priority] <= PRIORITIES[priority] for each in attempts)

    def changed_at(self, name: str) -> int:
        """The number of the last change of GPUs of a team or its cohort."""
        account = self[name]
        cohort = self._cohorts.get(account.team.cohort) if account.team.cohort else None
        return max(self[other].changed for other in cohort) if cohort else account.changed

    def grown_since(self, change: int) -> Iterator[str]:
        """Teams that have added GPUs since the change with this number."""
        for name in reversed(self._grown):
            if self._grown[name] <= change:
                return
            yield name

    def shares(self, capacity: Mapping[str, int], now: float) -> dict[str, float]:
        """Usage of each team with attempts or asks, in fair shares of its dominant resource (DRF; Ghodsi et al., NSDI 2011). 1: as much as
        its weight entitles it to among these teams. Usage counts half after each half-life. For a team with a quota only usage beyond the
        quota counts."""
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
        """Replace the usage of a team: decayed GPU-seconds by SKU, as of `at`."""
        account = self[name]
        account.used_s, account.at = dict(used_s), at

    def all(self) -> list[Account]:
        return list(self._accounts.values())

    def _settle(self, account: Account, now: float) -> None:
        """Bring decayed usage up to `now`, exactly: constant GPUs add GPUs x the integral of the decay."""
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
        return [(each.ends, each.gpus) for account in accounts for each in account.attempts.values() if each.sku == sku]

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
