"""Other versions of the product, as tests of upgrades run them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.clusters.next_version import EDITS, next_version
from tests.clusters.versions import PARTS, Edit, NotInHistory, edited, revision
from tests.clusters.watched import Seen, broken, made

from tuneyard_operators.rendering import JOB


def test_the_next_version_can_be_made_of_this_tree(tmp_path: Path) -> None:
    made_of = next_version(tmp_path / "next")
    assert all((made_of.folder / part).is_dir() for part in PARTS)
    assert all(edit.new in (made_of.folder / edit.file).read_text() for edit in EDITS)
    assert made_of.has_templates
    assert made_of.takes_a_grace


def test_an_edit_of_what_is_not_there_says_so(tmp_path: Path) -> None:
    gone = Edit("platform/tuneyard/__init__.py", "a text that no file has", "")
    with pytest.raises(ValueError, match=r"__init__.py holds 0 times: a text that no file has"):
        edited("wrong", tmp_path / "wrong", [gone])


def test_a_revision_that_is_not_in_the_history_says_what_to_do() -> None:
    with pytest.raises(NotInHistory, match="git fetch --unshallow"):
        revision("0" * 40)


def job(version: int, *attempts: dict[str, object]) -> Seen:
    metadata = {"name": "a", "uid": "u", "resourceVersion": str(version)}
    return Seen("MODIFIED", {"metadata": metadata, "status": {"attempts": list(attempts)}})


def rayjob(name: str, kind: str = "ADDED") -> Seen:
    return Seen(kind, {"metadata": {"name": name, "uid": name, "labels": {JOB: "a"}}})


FIRST = {"number": 1, "task": "train", "token": 1, "name": "a-1", "lastStep": 5, "created": True}
ENDED = {**FIRST, "endedAt": "noon", "failure": "NodeLost"}
SECOND = {**FIRST, "number": 2, "token": 2, "name": "a-2", "lastStep": 0}


def test_what_every_hub_does_breaks_no_law() -> None:
    jobs = [
        job(1),
        job(2, FIRST),
        job(3, {**FIRST, "lastStep": 9}),
        job(4, {**ENDED, "lastStep": 9}),
        job(5, {**ENDED, "lastStep": 9}, SECOND),
    ]
    assert broken(jobs, [rayjob("a-1"), rayjob("a-1", "DELETED"), rayjob("a-2")]) == []
    assert made([rayjob("a-1"), rayjob("a-2"), rayjob("a-2", "DELETED")]) == {"a": ["a-1", "a-2"]}


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ((FIRST,), (), "1 attempts, then 0"),
        ((FIRST,), ({**FIRST, "token": 7},), "token of attempt 1 was 1 and became 7"),
        ((FIRST,), ({**FIRST, "lastStep": 4},), "lastStep of attempt 1 was 5 and became 4"),
        ((FIRST,), ({**FIRST, "created": False},), "created of attempt 1 was True and became False"),
        ((ENDED,), (FIRST,), "endedAt of attempt 1 was noon and became None"),
        ((FIRST,), (FIRST, SECOND), "attempt 2 was placed while another of its task went on"),
        ((ENDED,), (ENDED, {**SECOND, "token": 1}), "tokens [1, 1]"),
    ],
)
def test_what_no_hub_may_do_is_named(before: tuple[dict[str, object], ...], after: tuple[dict[str, object], ...], says: str) -> None:
    assert any(says in each for each in broken([job(1, *before), job(2, *after)], []))


def test_a_rayjob_that_is_made_twice_is_named() -> None:
    assert broken([], [rayjob("a-1"), rayjob("a-1", "DELETED"), rayjob("a-1")]) == ["a: the RayJob a-1 was made 2 times"]
