"""Outputs of runs that ended early, made from outputs of runs that did not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch


def entries_of(output: Path) -> list[dict[str, Any]]:
    """The commit log of a task's output."""
    return [json.loads(entry.read_text()) for entry in sorted((output / "checkpoints" / "log").glob("*.json"))]


def committed(output: Path) -> list[int]:
    """Steps that count, oldest first."""
    from tuneyard.storage import CommitLog, open_store

    return [commit.step for commit in CommitLog(open_store(str(output)), "checkpoints/log").read().commits]


def checkpoint(output: Path, step: int) -> Path:
    """Folder of the committed checkpoint of `step`, by the newest attempt that made one."""
    name = next(entry["name"] for entry in reversed(entries_of(output)) if entry["kind"] == "commit" and entry["step"] == step)
    return output / str(name)


def stop_after(step: int, output: Path) -> None:
    """Undo what came after the newest commit of `step`, as if the run had been stopped there."""
    shutil.rmtree(output / "model", ignore_errors=True)
    entries = entries_of(output)
    last = max(number for number, entry in enumerate(entries) if entry["kind"] == "commit" and entry["step"] == step)
    for number, entry in enumerate(entries[last + 1 :], start=last + 2):
        (output / "checkpoints" / "log" / f"{number:08d}.json").unlink()
        if entry["kind"] == "commit":
            shutil.rmtree(output / entry["name"], ignore_errors=True)
    closing = {"format": 1, "nonce": "", "kind": "close", "token": entries[last]["token"]}
    (output / "checkpoints" / "log" / f"{last + 2:08d}.json").write_text(json.dumps(closing))


@contextmanager
def saves_in_turn() -> Iterator[None]:
    """A save that falls due waits for the one before, where a run leaves it out: on a busy machine no test could count on a step."""
    from tuneyard.training.checkpoint.checkpoints import Checkpoints

    save = Checkpoints.save

    def in_turn(self: Checkpoints, *arguments: Any, **options: Any) -> None:
        self._background.wait()
        save(self, *arguments, **options)

    with patch.object(Checkpoints, "save", in_turn):
        yield
