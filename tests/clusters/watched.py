"""Every version of every object that an API server held, and what must be true of them whichever hub writes, and however often it changes.

A `Watch` follows one kind in a thread. `broken` judges the versions of JobSpecs and RayJobs: nothing is started twice, no attempt is
forgotten or takes another's token, and what has ended stays as it ended.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import urllib3
from tests.testcluster.kubeapi import KubeApi, Refused

from tuneyard_operators.rendering import JOB

Object = dict[str, Any]
_CONSTANT = ("task", "token", "name", "placedAt")
_ONLY_GROWS = ("resumedFrom", "lastStep", "checkpointStep")
_ONCE_SET_STAYS = ("created", "startedAt", "stopping", "stopAskedAt", "endedAt", "failure")


@dataclass(frozen=True)
class Seen:
    """One event of a watch: ADDED, MODIFIED or DELETED."""

    kind: str
    item: Object

    @property
    def name(self) -> str:
        return str(self.item["metadata"]["name"])

    @property
    def uid(self) -> str:
        return str(self.item["metadata"]["uid"])


@dataclass
class Watch:
    """Follows the objects of a path, such as `/apis/ray.io/v1/namespaces/tuneyard/rayjobs`, until it is closed."""

    api: KubeApi
    path: str
    events: list[Seen] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    _held: dict[str, Object] = field(default_factory=dict)
    """uid -> the newest version of what is there."""

    def __post_init__(self) -> None:
        self._list()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def close(self) -> list[Seen]:
        """The events; nothing follows on them."""
        self._over.set()
        self._thread.join()
        return self.events

    def _follow(self) -> None:
        while not self._over.is_set():
            try:
                lines = self.api.lines(f"{self.path}?watch=1&timeoutSeconds=2&resourceVersion={self._version}")
                if not all(self._take(json.loads(line)) for line in lines):
                    self._list()
            except (urllib3.exceptions.HTTPError, OSError, Refused):
                self._over.wait(0.2)  # an API server that begins to serve a changed kind closes its watches

    def _list(self) -> None:
        """What a list tells in place of events: an API server that begins to serve a changed kind remembers none."""
        found = self.api.get(self.path)
        self._version = str(found["metadata"]["resourceVersion"])
        there = {item["metadata"]["uid"]: item for item in found["items"]}
        for uid in [uid for uid in self._held if uid not in there]:
            self._note("DELETED", self._held[uid])
        for uid, item in there.items():
            if uid not in self._held:
                self._note("ADDED", item)
            elif item != self._held[uid]:
                self._note("MODIFIED", item)

    def _take(self, event: Mapping[str, Any]) -> bool:
        """False where events are lost."""
        if event["type"] == "ERROR":
            return False
        self._version = event["object"]["metadata"]["resourceVersion"]
        if event["type"] != "BOOKMARK":
            self._note(event["type"], event["object"])
        return True

    def _note(self, kind: str, item: Object) -> None:
        self.events.append(Seen(kind, item))
        if kind == "DELETED":
            self._held.pop(item["metadata"]["uid"], None)
        else:
            self._held[item["metadata"]["uid"]] = item


def made(rayjobs: Iterable[Seen]) -> dict[str, list[str]]:
    """JobSpec -> names of all RayJobs that were ever made for it; a name stands as often as it was made."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for each in rayjobs:
        if each.kind == "ADDED":
            found[each.item["metadata"]["labels"][JOB]].append(each.name)
    return dict(found)


def broken(jobs: Iterable[Seen], rayjobs: Iterable[Seen]) -> list[str]:
    """What was done that no hub may do, in words; empty where all is well."""
    return [*_started_twice(rayjobs), *_changed_past(jobs)]


def _started_twice(rayjobs: Iterable[Seen]) -> Iterator[str]:
    for job, names in made(rayjobs).items():
        for name in sorted(set(names)):
            if names.count(name) > 1:
                yield f"{job}: the RayJob {name} was made {names.count(name)} times"


def _changed_past(jobs: Iterable[Seen]) -> Iterator[str]:
    versions: defaultdict[str, list[Seen]] = defaultdict(list)
    for each in jobs:
        versions[each.uid].append(each)
    for seen in versions.values():
        for before, after in pairwise(seen):
            yield from _changed(before.name, _attempts(before.item), _attempts(after.item))
        for each in seen:
            tokens = [attempt["token"] for attempt in _attempts(each.item)]
            if tokens != sorted(set(tokens)):
                yield f"{each.name}: tokens {tokens}"


def _changed(job: str, before: list[Object], after: list[Object]) -> Iterator[str]:
    if len(after) < len(before):
        yield f"{job}: {len(before)} attempts, then {len(after)}"
    for old, new in zip(before, after, strict=False):
        wrong = [name for name in _CONSTANT if old.get(name) != new.get(name)]
        wrong += [name for name in _ONLY_GROWS if old.get(name, 0) > new.get(name, 0)]
        wrong += [name for name in _ONCE_SET_STAYS if old.get(name) and old.get(name) != new.get(name)]
        for name in wrong:
            yield f"{job}: {name} of attempt {old['number']} was {old.get(name)} and became {new.get(name)}"
    if len(after) > len(before) and any(not each.get("endedAt") and each["task"] == after[-1]["task"] for each in after[: len(before)]):
        yield f"{job}: attempt {after[-1]['number']} was placed while another of its task went on"


def _attempts(item: Object) -> list[Object]:
    return list((item.get("status") or {}).get("attempts") or [])
