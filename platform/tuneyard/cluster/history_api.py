"""The API of run history: its group, its queries and its answers, for the client and for the hub.

`GET /apis/history.tuneyard.dev/v1alpha1/[namespaces/NAMESPACE/]pastjobs` lists jobs page by page; `…/pastjobs/NAME` has one with its
attempts; `…/usages` sums GPU-hours and cost; `…/trainingruns` lists what predictors learn from. Without a namespace, the reader needs the
right for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tuneyard.api import BadInput
from tuneyard.api.loading_reasons import did_you_mean, nearest
from tuneyard.api.moments import moment_of
from tuneyard.api.status import Phase
from tuneyard.kubernetes import Kind

HISTORY_GROUP, HISTORY_VERSION = "history.tuneyard.dev", "v1alpha1"
HISTORY_API_VERSION = f"{HISTORY_GROUP}/{HISTORY_VERSION}"
PAST_JOB = Kind("PastJob", HISTORY_API_VERSION, "pastjobs")
TRAINING_RUN = Kind("TrainingRun", HISTORY_API_VERSION, "trainingruns")
USAGE = Kind("Usage", HISTORY_API_VERSION, "usages")
USER = "tuneyard.dev/user"
"""Annotation of a JobSpec: who submitted it, as `tuneyard submit` has asked the API server. It is a name for sums, and no proof."""
MOST_IN_A_PAGE = 500
GROUPS = ("team", "user", "sku", "namespace", "job", "cluster", "month")
"""What usage can be summed by."""
STATES = (*(phase.lower() for phase in Phase), "stopped", "killed")
"""Of jobs in a history: a hub's phases, and of runs on a machine also those that a person has stopped, and whose process is gone."""
_TEXTS = ("team", "user", "status", "name", "origin")
_LONGEST = 253


@dataclass(frozen=True, kw_only=True)
class HistoryQuery:
    """A query about jobs or usage. Empty texts: any. `name`: a whole name, or a pattern such as `nightly-*`. `by`: of usage alone;
    `limit` and `after`: of a list alone."""

    team: str = ""
    user: str = ""
    status: str = ""
    name: str = ""
    origin: str = ""
    since: datetime | None = None
    until: datetime | None = None
    by: tuple[str, ...] = ()
    limit: int = MOST_IN_A_PAGE
    after: str = ""

    def __post_init__(self) -> None:
        """Raises BadInput for a name that no job can have, and for a state that none is in."""
        if self.status and self.status not in STATES:
            given = self.status[:50]
            raise BadInput(f"there is no state {given!r}{did_you_mean(given, STATES)}", f"use one of: {', '.join(STATES)}")
        if len(self.name) > _LONGEST:
            raise BadInput(f"the name has {len(self.name):,} characters; names have at most {_LONGEST}", "give a shorter name or pattern")

    def parameters(self) -> dict[str, str]:
        """As parameters of a URL, without those of a page, which the client's `list` adds."""
        found = {name: getattr(self, name) for name in _TEXTS}
        moments = {name: _text(getattr(self, name)) for name in ("since", "until")}
        return {name: value for name, value in {**found, **moments, "by": ",".join(self.by)}.items() if value}

    @classmethod
    def parse(cls, parameters: Iterable[tuple[str, str]]) -> HistoryQuery:
        """Raises BadInput, which names the parameter."""
        known = (*_TEXTS, "since", "until", "by", "limit", "continue")
        given: dict[str, str] = {}
        for name, value in parameters:
            if name not in known:
                best = nearest(name[:50], known)
                raise BadInput(f"there is no parameter {name[:50]!r}", f"did you mean {best}?" if best else f"use: {', '.join(known)}")
            if name in given or len(value) > _LONGEST:
                raise BadInput(f"the parameter {name} is given twice, or too long", "give each once")
            given[name] = value
        by = tuple(filter(None, given.get("by", "").split(",")))
        if unknown := [name for name in by if name not in GROUPS]:
            raise BadInput(f"usage cannot be summed by {unknown[0][:50]!r}", f"use: {', '.join(GROUPS)}")
        return cls(
            **{name: given.get(name, "") for name in _TEXTS},
            since=_moment("since", given),
            until=_moment("until", given),
            by=by,
            limit=_limit(given.get("limit", "")),
            after=given.get("continue", ""),
        )


def _limit(text: str) -> int:
    if not text:
        return MOST_IN_A_PAGE
    if not (text.isascii() and text.isdecimal() and len(text) <= 9 and int(text) >= 1):
        raise BadInput("the parameter limit is no whole number from 1", "leave it out for pages of 500")
    return min(int(text), MOST_IN_A_PAGE)


def _moment(name: str, given: Mapping[str, str]) -> datetime | None:
    try:
        return moment_of(given[name]) if given.get(name) else None
    except ValueError as error:
        raise BadInput(f"the parameter {name}: {error}", "") from error


def _text(moment: datetime | None) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z") if moment is not None else ""


def plain(value: Any) -> Any:
    """`value` as JSON has it: moments as RFC 3339."""
    if isinstance(value, datetime):
        return _text(value)
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
