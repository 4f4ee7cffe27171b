"""Attempts that race for one commit log, one storage operation at a time, in an order that a seed, hypothesis or a search chooses.

Every attempt is a thread with a store of its own, whose operations wait for their turn. So an order is a list of choices, a run can be
repeated, and an attempt that is not chosen for long is a zombie. What happened is judged in `promises`.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Literal, NoReturn

from tuneyard.api import StorageError
from tuneyard.storage import AlreadyExists, CommitLog, Fence, Fenced, FileInfo, LogState, NotFound, Store

Choose = Callable[[Sequence[str]], int]
"""Of those who wait for a turn: whose it is."""


class MemoryStore(Store):
    """Files in a dict."""

    def __init__(self) -> None:
        super().__init__("memory://test")
        self.files: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def put(self, path: str, data: bytes) -> None:
        self.files[path] = data

    def create(self, path: str, data: bytes) -> None:
        with self._lock:
            if path in self.files:
                raise AlreadyExists(f"{path} exists already")
            self.files[path] = data

    def put_stream(self, path: str, chunks: Any, size_bytes: int) -> None:  # noqa: ARG002
        self.put(path, b"".join(chunks))

    def get(self, path: str) -> bytes:
        try:
            return self.files[path]
        except KeyError as error:
            raise NotFound(f"{path} does not exist") from error

    def get_stream(self, path: str) -> Iterator[bytes]:
        yield self.get(path)

    def exists(self, path: str) -> bool:
        return path in self.files

    def list(self, prefix: str = "") -> Sequence[FileInfo]:
        with self._lock:
            return [FileInfo(path, len(data)) for path, data in sorted(self.files.items()) if path.startswith(f"{prefix}/")]

    def delete(self, path: str) -> None:
        self.files.pop(path, None)


class Fault(Enum):
    """What befalls an operation. A read takes the first as it is, and the others as a store that is away."""

    DIES_BEFORE = "the attempt dies before the write"
    DIES_AFTER = "the attempt dies after the write, before its answer"
    REQUEST_LOST = "the request is lost; the client tries again a turn later"
    ANSWER_LOST = "the answer is lost; the client tries again a turn later, and meets what it wrote"
    REQUEST_NEVER = "the store is away, and the client gives up"
    ANSWER_NEVER = "the write goes through, no answer ever comes, and the client gives up"
    ARRIVES_LATE = "the client gives up, and the write arrives at any later time"


@dataclass(frozen=True)
class Deed:
    """`by`: how far the step of a commit is above the last one, or how far a restart goes back."""

    kind: Literal["commit", "restart", "check"]
    by: int = 1


@dataclass(frozen=True)
class Life:
    """One attempt. `faults`: by the number of its storage operation. `insists`: how often it tries again when fenced."""

    deeds: tuple[Deed, ...]
    faults: Mapping[int, Fault] = field(default_factory=dict)
    insists: int = 0
    closes: bool = False


@dataclass(frozen=True)
class Plan:
    """Who takes part: each inner tuple is a place in which one attempt follows the other. `reads`: looks of a bystander."""

    places: tuple[tuple[Life, ...], ...]
    reads: int = 0


@dataclass(frozen=True)
class Told:
    """What one call of an attempt told it. Turns `began` and `ended`: what was written up to `began` was there before the call."""

    who: str
    token: int
    call: str
    outcome: Literal["done", "fenced", "doubt"]
    began: int
    ended: int
    key: str = ""
    step: int = 0
    state: LogState | None = None


@dataclass
class History:
    """All that happened. `created`: by path, the turn and the content of the write that won."""

    turns: int = 0
    trace: list[tuple[str, str]] = field(default_factory=list)
    created: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    told: list[Told] = field(default_factory=list)
    faults: Counter[Fault] = field(default_factory=Counter)
    entries: list[dict[str, Any]] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    @property
    def answers_lost(self) -> int:
        return sum(self.faults[fault] for fault in (Fault.ANSWER_LOST, Fault.ANSWER_NEVER, Fault.ARRIVES_LATE, Fault.DIES_AFTER))


class _Died(BaseException):
    """Ends an attempt where a SIGKILL would."""


class _Thread:
    """Somebody who waits for turns."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.waiting: deque[threading.Event] = deque()
        self.acting = False
        self.ended = False


class Turns:
    """Hands out turns: of all operations of all attempts, one is on its way at a time."""

    def __init__(self, inner: Store, choose: Choose) -> None:
        self.inner = inner
        self.history = History()
        self.late: deque[tuple[str, bytes]] = deque()
        """Writes that somebody gave up, and that are still on their way."""
        self._choose = choose
        self._changed = threading.Condition()

    def drive(self, bodies: Mapping[str, Callable[[_Thread], None]]) -> History:
        """Run all bodies to their end."""
        threads = [_Thread(name) for name in bodies]
        workers = [
            threading.Thread(target=self._run, args=(thread, body), daemon=True)
            for thread, body in zip(threads, bodies.values(), strict=True)
        ]
        for worker in workers:
            worker.start()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: all(t.ended or (t.waiting and not t.acting) for t in threads))
            ready = [thread for thread in threads if not thread.ended]
            if not ready:
                break
            names = [thread.name for thread in ready] + (["network"] if self.late else [])
            chosen = self._choose(names)
            self.history.turns += 1
            if chosen == len(ready):
                self.arrive()
                continue
            ready[chosen].acting = True
            ready[chosen].waiting.popleft().set()
        while self.late:
            self.history.turns += 1
            self.arrive()
        for worker in workers:
            worker.join()
        return self.history

    def _run(self, thread: _Thread, body: Callable[[_Thread], None]) -> None:
        try:
            body(thread)
        except Exception as error:  # noqa: BLE001 -- whatever it is, no attempt may meet it
            self.history.broken.append(f"{thread.name} ended with {error!r}")
        finally:
            with self._changed:
                thread.ended = True
                self._changed.notify()

    @contextmanager
    def turn(self, store: TurnedStore, what: str) -> Iterator[None]:
        mine = threading.Event()
        with self._changed:
            if store.dead:
                raise _Died
            store.thread.waiting.append(mine)
            self._changed.notify()
        mine.wait()
        if store.dead:
            raise _Died
        self.history.trace.append((store.thread.name, what))
        try:
            yield
        finally:
            with self._changed:
                store.thread.acting = False
                self._changed.notify()

    def die(self, store: TurnedStore) -> NoReturn:
        """End an attempt, and the reads that it had begun side by side: they take no turns, or runs would differ by how many had."""
        with self._changed:
            store.dead = True
            while store.thread.waiting:
                store.thread.waiting.popleft().set()
        raise _Died

    def write(self, path: str, data: bytes) -> None:
        """Raises AlreadyExists."""
        self.inner.create(path, data)
        if path in self.history.created:
            self.history.broken.append(f"{path} had two winners")
        self.history.created[path] = self.history.turns, data

    def arrive(self) -> None:
        path, data = self.late.popleft()
        self.history.trace.append(("network", path))
        try:
            self.write(path, data)
        except AlreadyExists:
            return


class TurnedStore(Store):
    """The store as one attempt sees it."""

    def __init__(self, turns: Turns, thread: _Thread, faults: Mapping[int, Fault]) -> None:
        super().__init__(turns.inner.uri)
        self.thread = thread
        self.dead = False
        self._turns = turns
        self._owner = threading.current_thread()
        self._faults = faults
        self._operations = 0

    @contextmanager
    def _turn(self, what: str) -> Iterator[Fault | None]:
        with self._turns.turn(self, what):
            fault = self._faults.get(self._operations)
            self._operations += 1
            yield fault

    def create(self, path: str, data: bytes) -> None:
        with self._turn(f"create {path}") as fault:
            if fault is not None:
                self._turns.history.faults[fault] += 1
            if fault is Fault.DIES_BEFORE:
                self._turns.die(self)
            elif fault is Fault.ARRIVES_LATE:
                self._turns.late.append((path, data))
            elif fault not in (Fault.REQUEST_LOST, Fault.REQUEST_NEVER):
                try:
                    self._turns.write(path, data)
                except AlreadyExists:
                    if fault is None:
                        raise
            if fault is Fault.DIES_AFTER:
                self._turns.die(self)
            if fault in (Fault.REQUEST_NEVER, Fault.ANSWER_NEVER, Fault.ARRIVES_LATE):
                raise StorageError(f"no answer about {path}")
        if fault is not None:  # the client's own second try
            with self._turn(f"create {path} again"):
                self._turns.write(path, data)

    def get(self, path: str) -> bytes:
        with self._turn("get") as fault:
            self._on_read(fault)
            return self._turns.inner.get(path)

    def list(self, prefix: str = "") -> Sequence[FileInfo]:
        with self._turn("list") as fault:
            self._on_read(fault)
            return self._turns.inner.list(prefix)

    def _on_read(self, fault: Fault | None) -> None:
        if fault in (Fault.DIES_BEFORE, Fault.DIES_AFTER):
            self._turns.history.faults[Fault.DIES_BEFORE] += 1
            self._turns.die(self)
        # Reads side by side, in threads of the log's, end in an order of their own: an error of one would make runs differ.
        if fault is not None and threading.current_thread() is self._owner:
            raise StorageError("the store is away")

    def _never(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("a log is created, read and listed, and nothing else")

    put = put_stream = get_stream = exists = delete = _never


class _Attempt:
    """Lives one life, and writes down what it is told."""

    def __init__(self, turns: Turns, thread: _Thread, who: str, prefix: str, life: Life) -> None:
        self._turns = turns
        self._who = who
        self._life = life
        self._log = CommitLog(TurnedStore(turns, thread, life.faults), prefix)
        self._token = 0
        self._keys = 0

    def live(self) -> None:
        fence = self._tell("open", lambda: self._log.open({"who": self._who}))
        if fence is None:
            return
        try:
            self._act(fence)
        except Fenced:
            for _ in range(self._life.insists):
                self._insist(fence)

    def _act(self, fence: Fence) -> None:
        step = self._last_step(fence) if self._life.deeds else 0
        for deed in self._life.deeds:
            if deed.kind == "check":
                self._tell("check", fence.check)
            elif deed.kind == "commit":
                step += deed.by
                self._commit(fence, step)
            else:
                back = max(0, step - deed.by)
                if self._tell("restart", partial(fence.restart, back), step=back) is not None:
                    step = back
        if self._life.closes:
            self._tell("close", fence.close)
            self._insist(fence)

    def _last_step(self, fence: Fence) -> int:
        while True:
            state: LogState | None = self._tell("check", fence.check)
            if state is not None:
                return state.last_step

    def _commit(self, fence: Fence, step: int) -> None:
        """As a checkpoint is committed: tried again while the store is away."""
        self._keys += 1
        key = f"{self._who}.{self._keys}"
        for _ in range(3):
            if self._tell("commit", lambda: fence.commit(step, f"step-{step}.{fence.token}", key), key=key, step=step) is not None:
                return

    def _insist(self, fence: Fence) -> None:
        # Above all that lives before have committed: a close whose request was lost has closed nothing, and this commit then counts.
        for call in (lambda: self._commit(fence, 10_000 * (1 + self._token)), lambda: self._tell("check", fence.check)):
            try:
                call()
            except Fenced:
                continue

    def _tell(self, call: str, action: Callable[[], Any], *, key: str = "", step: int = 0) -> Any:
        """What `action` returns; None, and in doubt, where the store gave no answer. Raises Fenced."""
        history, began = self._turns.history, self._turns.history.turns

        def note(outcome: Literal["done", "fenced", "doubt"], state: LogState | None = None) -> None:
            history.told.append(Told(self._who, self._token, call, outcome, began, history.turns, key, step, state))

        try:
            value = action()
        except StorageError:
            note("doubt")
            return None
        except Fenced:
            note("fenced")
            raise
        if isinstance(value, Fence):
            self._token = value.token
        note("done", value if isinstance(value, LogState) else None)
        return value


def run(inner: Store, plan: Plan, choose: Choose, prefix: str = "log") -> History:
    """Play `plan` on an empty folder `prefix` of a store."""
    turns = Turns(inner, choose)

    def place(number: int, lives: tuple[Life, ...]) -> Callable[[_Thread], None]:
        def body(thread: _Thread) -> None:
            for count, life in enumerate(lives):
                try:
                    _Attempt(turns, thread, f"{number}.{count}", prefix, life).live()
                except _Died:
                    continue

        return body

    def bystander(thread: _Thread) -> None:
        log = CommitLog(TurnedStore(turns, thread, {}), prefix)
        for count in range(plan.reads):
            began = turns.history.turns
            if count % 3 == 2:
                log = CommitLog(TurnedStore(turns, thread, {}), prefix)
            state = log.read()
            turns.history.told.append(Told("bystander", 0, "read", "done", began, turns.history.turns, state=state))

    bodies = {f"place {number}": place(number, lives) for number, lives in enumerate(plan.places)}
    history = turns.drive({**bodies, "bystander": bystander})
    files = {file.path: inner.get(file.path) for file in inner.list(prefix)}
    history.entries = [json.loads(files[path]) for path in sorted(files)]
    if files != {path: data for path, (_, data) in history.created.items()}:
        history.broken.append("what lies in the log is not what the winners wrote")
    if sorted(files) != [f"{prefix}/{number:08d}.json" for number in range(1, len(files) + 1)]:
        history.broken.append(f"the log has gaps: {sorted(files)}")
    return history


# Plans and orders


def random_plan(seed: int) -> Plan:
    """Two or three places with up to three attempts each."""
    dice = random.Random(f"plan {seed}")

    def deed() -> Deed:
        kinds: list[Literal["commit", "restart", "check"]] = ["commit", "restart", "check"]
        kind = dice.choices(kinds, (8, 1, 1))[0]
        return Deed(kind, dice.randint(1, 3) if kind == "commit" else dice.randint(0, 6))

    def life() -> Life:
        faults = {dice.randrange(16): dice.choice(list(Fault)) for _ in range(dice.choice((0, 1, 1, 2)))}
        return Life(tuple(deed() for _ in range(dice.randint(1, 6))), faults, dice.randint(0, 2), dice.random() < 0.3)

    places = tuple(tuple(life() for _ in range(dice.randint(1, 3))) for _ in range(dice.choice((2, 3))))
    return Plan(places, reads=dice.randint(2, 5))


def random_order(seed: int) -> Choose:
    """Now turn by turn, now in bursts; and at times somebody sleeps for long, and comes back as a zombie."""
    dice = random.Random(f"order {seed}")
    asleep: dict[str, int] = {}
    now = left = 0
    current = ""

    def choose(ready: Sequence[str]) -> int:
        nonlocal now, left, current
        now += 1
        awake = [name for name in ready if asleep.get(name, 0) <= now] or list(ready)
        if left == 0 or current not in awake:
            if current and dice.random() < 0.1:
                asleep[current] = now + dice.randint(5, 80)
            current, left = dice.choice(awake), dice.choice((1, 1, 1, 2, 4, 8, 16))
        left -= 1
        return ready.index(current)

    return choose


def listed_order(choices: Sequence[int]) -> Choose:
    """By number, and from the first one on when the numbers are used up."""
    left = deque(choices)
    return lambda ready: left.popleft() % len(ready) if left else 0


def every_order(play: Callable[[Choose], History]) -> Iterator[History]:
    """`play` in all orders there are, depth first."""
    path: list[int] = []
    while True:
        widths: list[int] = []

        def choose(ready: Sequence[str], path: list[int] = path, widths: list[int] = widths) -> int:
            widths.append(len(ready))
            return path[len(widths) - 1] if len(widths) <= len(path) else 0

        yield play(choose)
        path = path + [0] * (len(widths) - len(path))
        while path and path[-1] + 1 == widths[len(path) - 1]:
            path.pop()
        if not path:
            return
        path[-1] += 1
