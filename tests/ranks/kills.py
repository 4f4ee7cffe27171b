"""Training that is killed with SIGKILL at random instants and started again until it is through.

A case is a fork with the libraries loaded (`tests.ranks.forks`), and so is every attempt of it: an attempt costs a second or two
and not twenty.
"""

from __future__ import annotations

import itertools
import os
import pickle
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.ranks.forks import Call, called, forked

if TYPE_CHECKING:
    from tuneyard.training import TrainRequest

_ATTEMPT_LIMIT_S = 240
_MOST_STEPS = 4
"""An attempt that is killed has made so many steps at most when its last moment is drawn."""
_SOME_TIME_S = 0.05
_PEERS_END_S = 20
"""A rank that loses a peer notices by itself; this long, and it is ended."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """`plan`: fields of `cpu_plan`; `task`: of `train_task`. Half of the kills wait for a save to be on its way."""

    folder: str
    plan: dict[str, Any]
    layouts: list[dict[str, Any]] = field(default_factory=list)
    """Fields of `cpu_plan` for the attempts of a killed run, in turn; empty: all are laid out as `plan`."""
    task: dict[str, Any] = field(default_factory=dict)
    ranker: bool = False
    """Train a ranker; `task` and `plan` are then fields of `rank_task` and of its plan."""
    shape: dict[str, Any] = field(default_factory=dict)
    kills: int = 7
    seed: int = 0
    steps: int = 30
    every_steps: int = 2
    per_host: int | None = None
    """Ranks that take themselves for those of one host; None: all."""
    on_s3: bool = False
    outages: bool = False
    """Stop the S3 server at random, and start it again."""


@dataclass(kw_only=True)
class Outcome:
    """What came of it. `difference`: largest relative difference of a loss from the run that nothing happened to."""

    kills: int = 0
    in_saves: int = 0
    runs: int = 0
    attempts: int = 0
    outages: int = 0
    resumed_from: list[int] = field(default_factory=list)
    difference: float = 0.0
    exact: bool = False
    details: dict[str, Any] = field(default_factory=dict)
    """Of the last run that was killed."""


def run_case(case: Case, *, limit_s: float = 1800) -> Outcome:
    """Run a case in a process of its own."""
    outcome: Outcome = called([Call(_conducted, (case,), {"DS_ACCELERATOR": "cpu"})], limit_s)[0]
    return outcome


def _conducted(case: Case) -> Outcome:
    folder = Path(case.folder)
    folder.mkdir(parents=True, exist_ok=True)
    _in_fork(lambda: _write_clicks(folder) if case.ranker else _write_material(folder, case.shape), folder / "material.log")
    with _storage(case, folder) as (output, server):
        return _Run(case, folder, output, server).conduct()


def _write_material(folder: Path, shape: Mapping[str, Any]) -> None:
    from tests.builders.models import write_model, write_text

    write_model(folder / "model", **shape)
    write_text(folder / "text.jsonl", 256)


def _write_clicks(folder: Path) -> None:
    from tests.builders.rankers import write_clicks

    write_clicks(folder / "clicks.parquet")


class _Server:
    """The S3 server of a case, which can be away."""

    def __init__(self, folder: Path) -> None:
        from tests.servers.installed import S3, free_port

        for name in ("buckets/tests", "logs"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self.s3 = S3(free_port(), folder / "buckets", folder / "logs")
        self._up: Any = None
        self.start()

    def start(self) -> None:
        self._up = self.s3.started()
        self._up.__enter__()

    def stop(self) -> None:
        if self._up is not None:
            self._up.__exit__(None, None, None)
            self._up = None

    @property
    def is_up(self) -> bool:
        return self._up is not None


@contextmanager
def _storage(case: Case, folder: Path) -> Iterator[tuple[str, _Server | None]]:
    if not case.on_s3:
        yield str(folder), None
        return
    server = _Server(folder)
    os.environ.update(server.s3.environment)
    try:
        yield f"s3://{server.s3.bucket}", server
    finally:
        server.stop()


class _Run:
    def __init__(self, case: Case, folder: Path, output: str, server: _Server | None) -> None:
        self.case = case
        self.folder = folder
        self.output = output
        self.server = server
        self.chance = random.Random(case.seed)
        self.outcome = Outcome()
        self._switch_at = 0.0

    def conduct(self) -> Outcome:
        whole = self._attempt("whole", kill=False)
        assert whole is not None, self._log("whole")
        self.outcome.exact = True
        for run in itertools.count():  # a run may be through before it was killed often enough
            losses = self._killed(f"killed-{run}")
            self.outcome.runs += 1
            self.outcome.exact &= whole["losses"] == losses
            differences = [abs(a - b) / abs(a) for a, b in zip(whole["losses"], losses, strict=True)]
            self.outcome.difference = max(self.outcome.difference, *differences)
            if self.outcome.kills == self.case.kills:
                break
        return self.outcome

    def _killed(self, name: str) -> list[float]:
        """The losses of a run that went on after each kill until it was through."""
        result = None
        while result is None:
            kill = self.outcome.kills < self.case.kills
            result = self._attempt(name, kill=kill)
            self.outcome.attempts += 1
            if not kill:
                assert result is not None, self._log(name)
        self.outcome.resumed_from.append(result["resumed_from"])
        self.outcome.details = result["details"]
        losses: list[float] = result["losses"]
        return losses

    def _log(self, name: str) -> str:
        return "\n".join(path.read_text()[-3000:] for path in sorted(self.folder.glob(f"{name}-*.log")))

    def _attempt(self, name: str, *, kill: bool) -> dict[str, Any] | None:
        """Start all ranks; the result if they got through."""
        from tests.servers.installed import free_port

        answer, stepping = self.folder / f"{name}.pickle", self.folder / f"{name}.stepping"
        for path in (answer, stepping):
            path.unlink(missing_ok=True)
        layouts = self.case.layouts if name != "whole" and self.case.layouts else [self.case.plan]
        plan, port = layouts[self.outcome.attempts % len(layouts)], free_port()
        ranks = [self._fork(name, rank, plan, port, answer, stepping) for rank in range(plan.get("workers", 1))]
        if kill:
            self._kill_somewhere(name, ranks, stepping)
        self._wait(ranks)
        return pickle.loads(answer.read_bytes()) if answer.exists() else None

    def _fork(self, name: str, rank: int, plan: dict[str, Any], port: int, answer: Path, stepping: Path) -> int:
        workers = plan.get("workers", 1)

        def work() -> None:
            from tuneyard.tracking.events import Event, Step
            from tuneyard.training import train

            if workers > 1:
                local = self.case.per_host or workers
                values = {"RANK": rank, "WORLD_SIZE": workers, "LOCAL_RANK": rank % local, "LOCAL_WORLD_SIZE": local, "MASTER_PORT": port}
                os.environ.update({key: str(value) for key, value in values.items()}, MASTER_ADDR="127.0.0.1")

            def emit(event: Event) -> None:
                if isinstance(event, Step) and rank == 0:
                    with stepping.open("a") as steps:
                        steps.write(".")

            result = train(self._request(name, plan), emit=emit)
            if rank == 0:
                answer.write_bytes(pickle.dumps({"losses": result.losses, "resumed_from": result.resumed_from, "details": result.details}))

        return forked(work, self.folder / f"{name}-rank-{rank}.log")

    def _request(self, name: str, plan: dict[str, Any]) -> TrainRequest:
        from tests.builders.models import cpu_plan, train_request, train_task
        from tests.builders.rankers import rank_request, rank_task

        fields = {"steps": self.case.steps, "checkpoint": {"everySteps": self.case.every_steps, "keep": 3}, **self.case.task}
        output = f"{self.output}/{name}-out"
        if self.case.ranker:
            return replace(rank_request(self.folder / name, rank_task(self.folder / "clicks.parquet", **fields), **plan), output=output)
        task = train_task(self.folder / "model", self.folder / "text.jsonl", **fields)
        return train_request(self.folder / name, task, cpu_plan(**plan), output=output)

    def _kill_somewhere(self, name: str, ranks: list[int], stepping: Path) -> None:
        in_save = self.chance.random() < 0.5 and self.server is None
        while not stepping.exists():
            self._disturb()
            if _ended(ranks):
                return
            time.sleep(0.01)
        if self.outcome.kills % 2 and self.server is None:  # so that the next attempt has a checkpoint to resume from
            while not self._committed(name):
                if _ended(ranks):
                    return
                time.sleep(0.001)
        if in_save:
            before = self._begun(name)
            while self._begun(name) == before:
                if _ended(ranks):
                    return
                time.sleep(0.001)
            time.sleep(self.chance.uniform(0, _SOME_TIME_S))
        else:
            steps = self.chance.randint(1, _MOST_STEPS)
            while stepping.stat().st_size < steps and not _ended(ranks):
                self._disturb()
                time.sleep(0.001)
            time.sleep(self.chance.uniform(0, _SOME_TIME_S))
        if _ended(ranks):
            return
        # One rank, or the whole machine.
        for pid in ranks if self.chance.random() < 0.5 else [self.chance.choice(ranks)]:
            os.kill(pid, signal.SIGKILL)
        self.outcome.kills += 1
        self.outcome.in_saves += in_save

    def _begun(self, name: str) -> set[str]:
        folder = self.folder / f"{name}-out" / "checkpoints"
        return {path.name for path in folder.glob("step-*")} if folder.is_dir() else set()

    def _committed(self, name: str) -> bool:
        from tuneyard.storage import open_store
        from tuneyard.storage.commits import CommitLog
        from tuneyard.training.checkpoint.layout import LOG

        return bool(CommitLog(open_store(str(self.folder / f"{name}-out")), LOG).read().commits)

    def _disturb(self) -> None:
        if self.server is None or not self.case.outages or time.monotonic() < self._switch_at:
            return
        if self.server.is_up:
            self.server.stop()
            self.outcome.outages += 1
            self._switch_at = time.monotonic() + self.chance.uniform(0.5, 6)
        else:
            self.server.start()
            self._switch_at = time.monotonic() + self.chance.uniform(1, 5)

    def _wait(self, ranks: list[int]) -> None:
        deadline = time.monotonic() + _ATTEMPT_LIMIT_S
        left = set(ranks)
        while left:
            self._disturb()
            gone = {pid for pid in left if os.waitpid(pid, os.WNOHANG)[0]}
            if gone and left == set(ranks):
                deadline = min(deadline, time.monotonic() + _PEERS_END_S)
            left -= gone
            if time.monotonic() > deadline:
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
                deadline = time.monotonic() + _ATTEMPT_LIMIT_S
            time.sleep(0.01)


def _ended(ranks: list[int]) -> bool:
    """True if a rank has ended; it stays a zombie for `_wait`."""
    return any(os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) for pid in ranks)


def _in_fork(work: Callable[[], None], log: Path) -> None:
    _, status = os.waitpid(forked(work, log), 0)
    if status != 0:
        raise RuntimeError(log.read_text()[-3000:])
