"""A next step names no option that the command in use has not: storage is read and written by many of them."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tuneyard.api import Blame, FailureKind, JobFailed, StorageError
from tuneyard.cli.run import _again, _with_command
from tuneyard.storage.errors import os_errors
from tuneyard.storage.object_store import _next_step

STORAGE = Path(_next_step.__code__.co_filename).parent


@pytest.mark.parametrize("said", ["error sending request", "access denied", "http://169.254.169.254/latest"])
def test_storage_knows_of_no_command(said: str) -> None:
    assert "--resume" not in _next_step(said)


def test_a_disk_knows_of_no_command() -> None:
    with pytest.raises(StorageError) as error, os_errors("/data", "write"):
        raise OSError(errno.EIO, "Input/output error")
    assert error.value.next_step == "check the disk and the path; then try again"


def test_no_file_of_the_storage_room_names_the_option() -> None:
    assert [path.name for path in STORAGE.glob("*.py") if "--resume" in path.read_text()] == []


def test_run_says_how_it_is_tried_again() -> None:
    failure = StorageError("cannot write s3://b/k", _next_step("error sending request"), kind=FailureKind.STORAGE, blame=Blame(rank=1))

    told = _with_command(failure, _again(Path("my job.yaml"), "s3://b/out", "Qwen/Qwen2.5-0.5B"))

    assert told.next_step.endswith("; then try again: tuneyard run 'my job.yaml' --out s3://b/out --model Qwen/Qwen2.5-0.5B --resume")
    assert (type(told), told.cause, told.kind, told.blame) == (StorageError, failure.cause, failure.kind, failure.blame)


def test_run_leaves_other_advice_alone() -> None:
    failure = JobFailed("the deadline has passed", "set a later one")
    assert _with_command(failure, "tuneyard run") is failure
