"""A commit log with fencing tokens. It needs only create-if-absent, the one conditional write that every store has.

The log is a sequence of numbered entries. Each entry is created once and never changes. To append, a writer reads to the end and creates
the entry with the next number. Of several racing writers one succeeds; the others read the new entries before they try again. A writer has
therefore seen all entries before its own, and all readers see the same order:

- `open`: an attempt takes the log over. The number of this entry is the attempt's fencing token, greater than all earlier ones.
- `commit`: the attempt with `token` commits `step`.
- `restart`: commits above `step` no longer count (they are damaged, or a run starts again).
- `close`: the attempt with `token` is done.

A zombie is an attempt that was believed dead and comes back. Its next entry collides with its successor's `open`, and it is refused. It
cannot commit over its successor, however long it was suspended, and no clock is involved. (Fencing tokens: Kleppmann 2016, "How to do
distributed locking"; one log as the arbiter: Lamport 1998, "The Part-Time Parliament", with create-if-absent for its single decree.)
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tuneyard.api import FailureKind, JobFailed, StorageError
from tuneyard.storage.errors import AlreadyExists, NotFound
from tuneyard.storage.folders import in_parallel
from tuneyard.storage.store import Store
from tuneyard.storage.uris import join

FORMAT = 1
_NUMBERED = re.compile(r"/(\d{8,})\.json$")


class Fenced(JobFailed):
    """Another attempt has taken the log over. This attempt can commit nothing more."""

    default_kind = FailureKind.CANCELLED


@dataclass(frozen=True)
class Commit:
    """A committed step. `name`: its folder beside the log; `sha256`: the hash of that folder's manifest."""

    step: int
    token: int
    name: str
    sha256: str


@dataclass(frozen=True)
class LogState:
    """The state after a number of entries. `commits`: in ascending order of steps."""

    entries: int = 0
    token: int = 0
    """The fencing token of the attempt that holds the log; 0: no attempt has held it yet."""
    holder: Mapping[str, Any] = field(default_factory=dict)
    closed: bool = True
    commits: tuple[Commit, ...] = ()

    @property
    def last_step(self) -> int:
        return self.commits[-1].step if self.commits else 0

    def after(self, entry: Mapping[str, Any]) -> LogState:
        """The state with one more entry. An entry of an attempt that does not hold the log is ignored; no writer creates one."""
        number, kind = self.entries + 1, entry["kind"]
        if kind == "open":
            return replace(self, entries=number, token=number, holder=entry["holder"], closed=False)
        seen = replace(self, entries=number)
        if entry["token"] != self.token or self.closed:
            return seen
        if kind == "commit":
            commit = Commit(entry["step"], self.token, entry["name"], entry["sha256"])
            return replace(seen, commits=(*self.commits, commit)) if commit.step > self.last_step else seen
        if kind == "restart":
            return replace(seen, commits=tuple(commit for commit in self.commits if commit.step <= entry["step"]))
        return replace(seen, closed=True) if kind == "close" else seen


class CommitLog:
    """The log in the folder `prefix` of a store. Each read fetches new entries only. Safe to use from several threads."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store = store
        self._prefix = prefix
        self._seen = LogState()
        """The state from which the next read begins. Entries never change, so an earlier state of any thread is valid."""

    @property
    def uri(self) -> str:
        return self._store.url(self._prefix)

    def read(self) -> LogState:
        """The current state. Raises StorageError for an entry of a newer version, or one that cannot be read."""
        state = self._seen
        if state.entries == 0:
            numbers = [int(match.group(1)) for file in self._store.list(self._prefix) if (match := _NUMBERED.search(file.path))]
            state = self._first(max(numbers, default=0))
        while (entry := self._entry(state.entries + 1)) is not None:
            state = state.after(entry)
        self._seen = state
        return state

    def open(self, holder: Mapping[str, Any]) -> Fence:
        """Take the log over from its current holder. `holder`: the new holder, for people and for later challengers."""
        while True:
            state = self.read()
            if self._create(state, {"kind": "open", "holder": dict(holder)}) is not None:
                return Fence(self, state.entries + 1)

    def open_after(self, token: int, holder: Mapping[str, Any]) -> Fence | None:
        """Take the log over from the attempt with `token` (0: an unused log) only. None: another attempt was faster."""
        while (state := self.read()).token == token:
            if self._create(state, {"kind": "open", "holder": dict(holder)}) is not None:
                return Fence(self, state.entries + 1)
        return None

    def append(self, token: int, entry: Mapping[str, Any], *, unless: Callable[[LogState], bool] = lambda _: False) -> LogState:
        """Append as the attempt with `token`, except where `unless` is true of the state just before.

        Raises Fenced if the attempt no longer holds the log.
        """
        while True:
            state = self.held_by(token)
            if unless(state):
                return state
            after = self._create(state, {**entry, "token": token})
            if after is not None:
                return after

    def held_by(self, token: int) -> LogState:
        """The state, if the attempt with `token` holds the log. Raises Fenced otherwise."""
        state = self.read()
        if state.token != token or state.closed:
            raise _fenced(self.uri, state, token)
        return state

    def _create(self, state: LogState, entry: Mapping[str, Any]) -> LogState | None:
        """Create the entry after `state`. Returns the new state, or None if another writer created this entry.

        A nonce distinguishes a lost response to a successful write from a lost race. After a successful response the entry is not read
        back, because each further request could fail and leave the outcome in doubt.
        """
        number, nonce = state.entries + 1, uuid.uuid4().hex
        content = json.dumps({"format": FORMAT, "nonce": nonce, **entry}, sort_keys=True).encode() + b"\n"
        try:
            self._store.create(self._path(number), content)
        except AlreadyExists:
            if (self._entry(number) or {}).get("nonce") != nonce:
                return None
        self._seen = state.after(json.loads(content))
        return self._seen

    def _first(self, last: int) -> LogState:
        """The state after the entries up to `last`, which are known to exist."""
        state = LogState()
        numbers = range(1, last + 1)
        for number, entry in zip(numbers, in_parallel(self._entry, numbers), strict=True):
            if entry is None:
                raise StorageError(
                    f"{self._store.url(self._path(number))} is missing, but later entries of the log exist",
                    "restore it (no entry of a log may be removed), or continue in another output folder",
                )
            state = state.after(entry)
        return state

    def _entry(self, number: int) -> dict[str, Any] | None:
        path = self._path(number)
        try:
            entry: dict[str, Any] = json.loads(self._store.get(path))
            format_, _ = entry["format"], entry["kind"]
        except NotFound:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(
                f"{self._store.url(path)} is damaged: {error!r}", "restore it from a backup, or continue in another output folder"
            ) from error
        if format_ > FORMAT:
            raise StorageError(
                f"{self._store.url(path)} has format {format_}, written by a newer Tuneyard", f"use that one: this one reads up to {FORMAT}"
            )
        return entry

    def _path(self, number: int) -> str:
        return join(self._prefix, f"{number:08d}.json")


@dataclass(frozen=True)
class Fence:
    """The right of one attempt to commit, until another attempt takes over."""

    log: CommitLog
    token: int

    def commit(self, step: int, name: str, sha256: str) -> LogState:
        """Commit `step`. Raises Fenced, or ValueError for a step that is not above the last one.

        May be called again after a StorageError: if the first try has succeeded, the call finds its entry and appends none.
        """
        commit = Commit(step, self.token, name, sha256)

        def is_there(state: LogState) -> bool:
            if state.commits and state.commits[-1] == commit:
                return True
            if step <= state.last_step:
                raise ValueError(f"step {step} is not after {state.last_step}, which is committed")
            return False

        return self.log.append(self.token, {"kind": "commit", "step": step, "name": name, "sha256": sha256}, unless=is_there)

    def restart(self, step: int) -> LogState:
        """Discard all commits above `step`. Raises Fenced."""
        return self.log.append(self.token, {"kind": "restart", "step": step})

    def check(self) -> LogState:
        """The state, if this attempt still holds the log. Raises Fenced otherwise."""
        return self.log.held_by(self.token)

    def close(self) -> None:
        """Release the log. Does nothing if another attempt has taken over."""
        try:
            self.log.append(self.token, {"kind": "close"})
        except Fenced:
            return


def _fenced(uri: str, state: LogState, token: int) -> Fenced:
    if state.token == token:
        return Fenced(f"{uri} was released: this attempt can commit nothing more there", "start another attempt")
    holder = state.holder
    who = f"{holder.get('job', 'another job')}, attempt {holder.get('attempt', '?')}, on {holder.get('host', 'an unknown host')}"
    return Fenced(
        f"{who} has taken over {uri}: this attempt can commit nothing more there",
        "let the newer attempt continue; earlier commits are safe",
    )
