"""A commit log with fencing, on create-if-absent alone: the one conditional write that every store has.

The log is a sequence of numbered entries, each created once and never changed. Who wants to append reads to the end and creates the
next number; of any number of racing writers one succeeds, and the others read on before they try again. So an entry is written
only by someone who has seen all before it, and the entries have one order, the same for everybody:

- `open`: an attempt takes over. The number of this entry is its fencing token, greater than all before.
- `commit`: what the attempt with `token` has made counts, as `step`.
- `restart`: commits above `step` no longer count (they are damaged, or a run begins anew).
- `close`: the attempt with `token` is done.

A zombie - an attempt that was believed dead and comes back - finds an `open` at the number it wanted, and is refused: it cannot
commit over its successor, whatever it does and however long it slept, and no clock is read. (Fencing tokens: Kleppmann 2016, "How to
do distributed locking"; one log as the arbiter: Lamport 1998, "The Part-Time Parliament", with create-if-absent for its single decree.)
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
    """Another attempt has taken over: nothing of this one counts any more."""

    default_kind = FailureKind.CANCELLED


@dataclass(frozen=True)
class Commit:
    """A committed step. `name`: its folder beside the log; `sha256`: of that folder's manifest."""

    step: int
    token: int
    name: str
    sha256: str


@dataclass(frozen=True)
class LogState:
    """What the entries so far amount to. `commits`: oldest first, steps growing."""

    entries: int = 0
    token: int = 0
    """Of the attempt that holds the log; 0: nobody ever did."""
    holder: Mapping[str, Any] = field(default_factory=dict)
    closed: bool = True
    commits: tuple[Commit, ...] = ()

    @property
    def last_step(self) -> int:
        return self.commits[-1].step if self.commits else 0

    def after(self, entry: Mapping[str, Any]) -> LogState:
        """The state with one more entry. Entries of attempts that do not hold the log change nothing: none is ever written."""
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
    """The log in the folder `prefix` of a store. Reads only what it has not seen yet. Safe to use from several threads."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store = store
        self._prefix = prefix
        self._seen = LogState()
        """Where the next read begins. Entries never change, so any earlier state does, whichever thread left it here."""

    @property
    def uri(self) -> str:
        return self._store.url(self._prefix)

    def read(self) -> LogState:
        """The state as of now. Raises StorageError for an entry of a newer version, or one that cannot be read."""
        state = self._seen
        if state.entries == 0:
            numbers = [int(match.group(1)) for file in self._store.list(self._prefix) if (match := _NUMBERED.search(file.path))]
            state = self._first(max(numbers, default=0))
        while (entry := self._entry(state.entries + 1)) is not None:
            state = state.after(entry)
        self._seen = state
        return state

    def open(self, holder: Mapping[str, Any]) -> Fence:
        """Take the log over from whoever has it; `holder` says who we are, for people and for the next one."""
        while True:
            state = self.read()
            if self._create(state, {"kind": "open", "holder": dict(holder)}) is not None:
                return Fence(self, state.entries + 1)

    def open_after(self, token: int, holder: Mapping[str, Any]) -> Fence | None:
        """Take the log over from the attempt with `token` (0: from nobody), and from no other: None if one was faster."""
        while (state := self.read()).token == token:
            if self._create(state, {"kind": "open", "holder": dict(holder)}) is not None:
                return Fence(self, state.entries + 1)
        return None

    def append(self, token: int, entry: Mapping[str, Any], *, unless: Callable[[LogState], bool] = lambda _: False) -> LogState:
        """Append as the attempt with `token`, `unless` that is told of the state just before. Raises Fenced if it holds the log no more."""
        while True:
            state = self.held_by(token)
            if unless(state):
                return state
            after = self._create(state, {**entry, "token": token})
            if after is not None:
                return after

    def held_by(self, token: int) -> LogState:
        """The state, if the attempt with `token` holds the log. Raises Fenced."""
        state = self.read()
        if state.token != token or state.closed:
            raise _fenced(self.uri, state, token)
        return state

    def _create(self, state: LogState, entry: Mapping[str, Any]) -> LogState | None:
        """The state with the entry that follows `state`, if that is ours.

        A lost answer to a write that went through is told from a lost race by a nonce. The entry is not read back: a failure
        between a write and its answer is a doubt, and there need not be more of them.
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
        """The state after the entries up to `last`, which are known to be there."""
        state = LogState()
        numbers = range(1, last + 1)
        for number, entry in zip(numbers, in_parallel(self._entry, numbers), strict=True):
            if entry is None:
                raise StorageError(
                    f"{self._store.url(self._path(number))} is missing, and later entries of the log are there",
                    "restore it: nothing in a log may be removed; or go on in another output folder",
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
                f"{self._store.url(path)} is damaged: {error!r}", "restore it from a backup, or go on in another output folder"
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
    """The right of one attempt to commit, until another takes over."""

    log: CommitLog
    token: int

    def commit(self, step: int, name: str, sha256: str) -> LogState:
        """Make `step` count. Raises Fenced, or ValueError for a step that is not above the last one.

        May be called again after a StorageError: where the first try went through unseen, that is found, and nothing is appended.
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
        """From here on, commits above `step` do not count. Raises Fenced."""
        return self.log.append(self.token, {"kind": "restart", "step": step})

    def check(self) -> LogState:
        """The state, if it is still ours. Raises Fenced."""
        return self.log.held_by(self.token)

    def close(self) -> None:
        """Give it back; nothing happens where another has taken over."""
        try:
            self.log.append(self.token, {"kind": "close"})
        except Fenced:
            return


def _fenced(uri: str, state: LogState, token: int) -> Fenced:
    if state.token == token:
        return Fenced(f"{uri} was given back: this attempt commits nothing more there", "start another attempt")
    holder = state.holder
    who = f"{holder.get('job', 'another job')}, attempt {holder.get('attempt', '?')}, on {holder.get('host', 'an unknown host')}"
    return Fenced(
        f"{who} has taken over {uri}: this attempt commits nothing more there",
        "let the newer one go on; what was committed before it began is safe",
    )
