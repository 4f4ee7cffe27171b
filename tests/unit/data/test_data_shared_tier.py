"""The tier of shared shards on a folder: whole shards or none, bounded waits, and room that is made by one process at a time."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tuneyard.api import BadInput, StorageError
from tuneyard.data.shared import tier as tier_module
from tuneyard.data.shared.eviction import EVERY_S, Evicted, evict, note_path
from tuneyard.data.shared.objects import Unusable, object_path, unwrapped, wrapped
from tuneyard.data.shared.place import Counts, SharedShards, Wanted, fetched, with_counts
from tuneyard.data.shared.tier import Tier
from tuneyard.storage import Store
from tuneyard.storage.local_store import LocalStore

CONTENT = bytes(range(256)) * 40


@pytest.fixture
def place(tmp_path: Path) -> SharedShards:
    return SharedShards(str(tmp_path / "tier"), "maps")


@pytest.fixture
def built(tmp_path: Path) -> Path:
    path = tmp_path / "built.shard"
    path.write_bytes(CONTENT)
    return path


def wanted(path: Path, name: str = "one") -> Wanted:
    return Wanted(name, path, f"mark of {name}")


def stored(place: SharedShards, path: Path, *names: str, build_s: float = 1.0, **how: Any) -> Counts:
    """What a job counts that has built shards of these names."""
    tier = Tier(place, **how)
    for name in names or ("one",):
        tier.store(wanted(path, name), build_s)
    return tier.finish()


def object_of(place: SharedShards, name: str = "one") -> Path:
    return Path(place.uri) / object_path(place.team, name)


def test_what_one_job_has_built_is_fetched_by_the_next(place: SharedShards, built: Path, tmp_path: Path) -> None:
    first = stored(place, built)
    assert (first.built, first.stored, first.stored_bytes, first.not_stored) == (1, 1, len(CONTENT), 0)
    tier, path = Tier(place), tmp_path / "shards" / "one.shard"
    assert tier.fetch(wanted(path))
    assert path.read_bytes() == CONTENT
    counts = tier.finish(frozenset({"mark of one", "mark of another"}))
    assert (counts.fetched, counts.fetched_bytes, counts.built, counts.found) == (1, len(CONTENT), 0, 1)
    assert counts.saved_s == pytest.approx(1.0 - counts.fetch_s)
    assert not counts.sentence


def test_a_team_sees_no_shard_of_another(place: SharedShards, built: Path, tmp_path: Path) -> None:
    stored(place, built)
    other = Tier(SharedShards(place.uri, "ads"))
    assert not other.fetch(wanted(tmp_path / "stolen"))
    assert other.finish().missing == 1
    object_of(SharedShards(place.uri, "ads")).parent.mkdir(parents=True)
    object_of(SharedShards(place.uri, "ads")).write_bytes(object_of(place).read_bytes())
    assert not other.fetch(wanted(tmp_path / "stolen")), "one that is copied over is known by its path"
    assert not (tmp_path / "stolen").exists()


def test_of_two_that_build_a_shard_one_stores_it(place: SharedShards, built: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        counts = list(threads.map(lambda _: stored(place, built), range(8)))
    assert sum(each.stored for each in counts) == 1
    assert sum(each.stored_by_others for each in counts) == 7
    assert not any(each.problem for each in counts)


def _of_another(place: SharedShards, built: Path) -> bytes:
    stored(place, built, "another")
    return object_of(place, "another").read_bytes()


DAMAGES: dict[str, Callable[[SharedShards, Path, bytes], bytes]] = {
    "cut short": lambda _place, _built, data: data[:-100],
    "empty": lambda _place, _built, _data: b"",
    "cut inside its first line": lambda _place, _built, data: data[:20],
    "a changed byte": lambda _place, _built, data: data[:-7] + bytes([data[-7] ^ 1]) + data[-6:],
    "foreign": lambda _place, _built, _data: b"PAR1" + CONTENT,
    "JSON that says something else": lambda _place, _built, _data: b'{"format": 3}\n' + CONTENT,
    "a list": lambda _place, _built, _data: b"[1, 2]\n" + CONTENT,
    "longer than it says": lambda _place, _built, data: data + b"more",
    "the shard of another split": lambda place, built, _data: _of_another(place, built),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_object_that_is_not_the_shard_is_refused_once_and_replaced(
    damage: str, place: SharedShards, built: Path, tmp_path: Path
) -> None:
    stored(place, built)
    path = object_of(place)
    path.write_bytes(DAMAGES[damage](place, built, path.read_bytes()))
    tier, target = Tier(place), tmp_path / "fetched.shard"
    assert not tier.fetch(wanted(target))
    assert not target.exists()
    tier.store(wanted(built), 1.0)
    counts = tier.finish()
    assert (counts.refused, counts.fetched, counts.stored) == (1, 0, 1)
    assert str(path) in counts.sentence
    again = Tier(place)
    assert again.fetch(wanted(target))
    assert again.finish().refused == 0


def test_a_whole_object_that_holds_no_rows_is_refused_too(place: SharedShards, built: Path, tmp_path: Path) -> None:
    stored(place, built)
    tier, target = Tier(place), tmp_path / "fetched.shard"
    assert not fetched(tier, wanted(target), lambda _path: "it is no shard of rows")
    assert not target.exists()
    counts = tier.finish()
    assert (counts.refused, counts.fetched) == (1, 0)
    assert "it is no shard of rows" in counts.sentence
    assert fetched(tier, wanted(target), lambda _path: "")
    assert not fetched(None, wanted(target), lambda _path: "")


@pytest.mark.parametrize("size", [0, 1, 100_000])
def test_objects_are_unwrapped_as_they_were_wrapped(size: int) -> None:
    content = os.urandom(size)
    found = unwrapped("a/b.shard", wrapped("a/b.shard", content, build_s=2.5, now=100.0))
    assert (bytes(found.content), found.build_s, found.stored_at) == (content, 2.5, 100.0)
    with pytest.raises(Unusable, match=r"stored as a/b\.shard"):
        unwrapped("a/c.shard", wrapped("a/b.shard", content, build_s=2.5, now=100.0))


# --- faults of the tier


class Faulty(LocalStore):
    """A folder whose operations can be held up, or fail."""

    def __init__(self, uri: str) -> None:
        super().__init__(Path(uri))
        self.go_on = threading.Event()
        self.asked = 0
        self.error: Exception | None = None

    def get(self, path: str) -> bytes:
        self.asked += 1
        self._stumble()
        return super().get(path)

    def create(self, path: str, data: bytes) -> None:
        self._stumble()
        super().create(path, data)

    def _stumble(self) -> None:
        self.go_on.wait()
        if self.error is not None:
            raise self.error


@pytest.fixture
def faulty(place: SharedShards) -> Iterator[Faulty]:
    """It answers at once until `go_on` is cleared."""
    store = Faulty(place.uri)
    store.go_on.set()
    yield store
    store.go_on.set()


def test_a_tier_that_hangs_costs_a_job_its_limits_and_no_more(
    faulty: Faulty, place: SharedShards, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"_SHORTEST_FETCH_S": 0.02, "LONGEST_FETCH_S": 0.02, "_GRACE_S": 0.05, "LAST_STORES_S": 0, "_LAST_SHARE": 0}.items():
        monkeypatch.setattr(tier_module, name, value)
    faulty.go_on.clear()
    tier = Tier(place, open_place=lambda _uri: faulty)
    for number in range(20):
        assert not tier.fetch(wanted(tmp_path / "target", str(number)))
    asked = faulty.asked
    assert 1 <= asked <= 3
    tier.store(wanted(built, "first"), 1_000.0)
    assert not tier.fetch(wanted(tmp_path / "target", "again"))
    assert faulty.asked == asked + 1, "building has paid for another try"
    counts = tier.finish()
    assert (counts.slow, counts.fetched, counts.stored, counts.not_stored) == (asked + 1, 0, 0, 1)
    assert counts.passed_over == 20 - asked
    assert "did not answer" in counts.sentence
    faulty.go_on.set()
    monkeypatch.setattr(tier_module, "LONGEST_FETCH_S", 300)
    tier.store(wanted(built, "second"), 1.0)
    tier._waiting.join()
    assert tier.finish().stored == 2, "what waited is stored once the tier answers"
    assert tier.fetch(wanted(tmp_path / "target", "second"))


def test_a_tier_that_is_slower_than_building_is_passed_over(
    place: SharedShards, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tier_module, "_SHORTEST_FETCH_S", 300)
    monkeypatch.setattr(tier_module, "LONGEST_FETCH_S", 300)
    stored(place, built, *map(str, range(20)), build_s=0.5)
    clock = [0.0]

    class Slow(LocalStore):
        def get(self, path: str) -> bytes:
            clock[0] += 1.5
            return super().get(path)

    tier = Tier(place, open_place=lambda uri: Slow(Path(uri)), clock=lambda: clock[0])
    found = [tier.fetch(wanted(tmp_path / "target", str(number))) for number in range(20)]
    assert found == [True] * 6 + [False] * 14, "5 s of grace, and each of them a second longer than building"
    counts = tier.finish()
    assert (counts.fetched, counts.passed_over) == (6, 14)
    assert counts.saved_s == pytest.approx(-6)


def test_fetches_may_take_as_long_as_building(place: SharedShards, built: Path) -> None:
    tier = Tier(place)
    assert tier._limit_s() == tier_module._SHORTEST_FETCH_S
    for build_s, limit_s in ((5.0, 5.0), (9.0, 7.0), (100.0, tier_module.LONGEST_FETCH_S)):
        tier.store(wanted(built, str(build_s)), build_s)
        assert tier._limit_s() == limit_s


@pytest.mark.parametrize(
    "error", [StorageError("cannot write to s3://tier/one: no space left", "free some"), OSError(errno.ENOSPC, "No space left on device")]
)
def test_a_tier_that_is_full_is_no_failure_and_is_asked_again_later(
    error: Exception, faulty: Faulty, place: SharedShards, built: Path
) -> None:
    faulty.error = error
    clock = [1_000.0]
    tier = Tier(place, open_place=lambda _uri: faulty, clock=lambda: clock[0])
    for number in range(9):
        tier.store(wanted(built, str(number)), 1.0)
    tier._waiting.join()
    counts = tier.finish()
    assert (counts.built, counts.stored, counts.not_stored) == (9, 0, 9)
    assert "space left" in counts.sentence.lower()
    faulty.error = None
    tier.store(wanted(built, "while it pauses"), 1.0)
    tier._waiting.join()
    assert tier.finish().stored == 0
    clock[0] += tier_module._LONGEST_PAUSE_S + 1
    tier.store(wanted(built, "later"), 1.0)
    tier._waiting.join()
    assert tier.finish().stored == 1


def test_a_tier_that_cannot_be_opened_is_no_failure(place: SharedShards, built: Path, tmp_path: Path) -> None:
    def refuse(_uri: str) -> Store:
        raise BadInput("no such kind of storage")

    tier = Tier(place, open_place=refuse)
    assert not tier.fetch(wanted(tmp_path / "target"))
    tier.store(wanted(built), 1.0)
    counts = tier.finish()
    assert (counts.failed, counts.not_stored) == (1, 1)
    assert "no such kind of storage" in counts.sentence


def test_a_shard_that_was_removed_to_make_room_is_not_stored(place: SharedShards, tmp_path: Path) -> None:
    counts = stored(place, tmp_path / "gone.shard")
    assert (counts.built, counts.stored, counts.not_stored, counts.problem) == (1, 0, 1, "")


# --- room


def fill(place: SharedShards, built: Path, count: int) -> LocalStore:
    """`count` shards, the first stored first."""
    stored(place, built, *map(str, range(count)))
    for number in range(count):
        os.utime(object_of(place, str(number)), (1_000 + number, 1_000 + number))
    return LocalStore(Path(place.uri))


def left(place: SharedShards, count: int) -> list[int]:
    return [number for number in range(count) if object_of(place, str(number)).exists()]


def note_use(place: SharedShards, store: Store, number: int, at: float) -> None:
    path = note_path(object_path(place.team, str(number)))
    store.put(path, b"")
    os.utime(Path(place.uri) / path, (at, at))


def test_the_least_recently_used_shards_go_first(place: SharedShards, built: Path) -> None:
    store = fill(place, built, 10)
    note_use(place, store, 0, 5_000)
    size = object_of(place, "0").stat().st_size
    gone = evict(store, place.team, 6 * size, now=10_000)
    assert left(place, 10) == [0, 6, 7, 8, 9], "0.9 of the limit is left, and 0 was used last"
    assert gone.shards == 5
    assert gone.size_bytes == pytest.approx(5 * size, rel=0.01)
    assert evict(store, place.team, 0, now=10_001) == Evicted(0, 0), "one process evicts in a period"
    assert evict(store, place.team, 6 * size, now=10_000 + EVERY_S) == Evicted(0, 0)
    assert len(list((Path(place.uri) / place.team / "evictions").iterdir())) == 1


def test_what_fits_stays(place: SharedShards, built: Path) -> None:
    store = fill(place, built, 3)
    assert evict(store, place.team, 10**9, now=10_000) == Evicted(0, 0)
    assert left(place, 3) == [0, 1, 2]


def test_other_teams_are_left_alone(place: SharedShards, built: Path) -> None:
    other = SharedShards(place.uri, "ads")
    fill(place, built, 3)
    store = fill(other, built, 3)
    assert evict(store, "maps", 0, now=10_000).shards == 3
    assert left(other, 3) == [0, 1, 2]


class Dies(LocalStore):
    """Its process ends before its n-th removal."""

    def __init__(self, root: Path, after: int) -> None:
        super().__init__(root)
        self.after = after

    def delete(self, path: str) -> None:
        if self.after == 0:
            raise KeyboardInterrupt
        self.after -= 1
        super().delete(path)


def test_an_evictor_that_is_killed_anywhere_leaves_nothing_to_repair(place: SharedShards, built: Path, tmp_path: Path) -> None:
    size = 0
    for after in range(8):
        store = fill(place, built, 6)
        note_use(place, store, 0, 900)
        note_use(place, store, 5, 9_000)
        size = object_of(place, "5").stat().st_size
        now = 100_000 + after * 10 * EVERY_S
        with pytest.raises(KeyboardInterrupt):
            evict(Dies(Path(place.uri), min(after, 5)), place.team, 2 * size, now=now)
        evict(store, place.team, 2 * size, now=now + EVERY_S)
        kept = left(place, 6)
        assert kept in ([5], [4, 5]), "those that fit"
        names = [path.suffix for path in Path(place.uri).rglob("*") if path.is_file()]
        assert sorted(names) == ["", *[".shard"] * len(kept), ".used"], "a claim, and the shard that was used last with its note"
        assert Tier(place).fetch(wanted(tmp_path / "target", "5"))


def test_a_use_is_noted_for_shards_that_were_stored_long_ago(place: SharedShards, built: Path, tmp_path: Path) -> None:
    stored(place, built, "old", now=lambda: 1_000.0)
    stored(place, built, "new", now=lambda: 9_000.0)
    tier = Tier(place, now=lambda: 9_100.0)
    assert all(tier.fetch(wanted(tmp_path / name, name)) for name in ("old", "new", "old"))
    tier.finish()
    notes = [path.relative_to(place.uri).as_posix() for path in Path(place.uri).rglob("*.used")]
    assert notes == [note_path(object_path(place.team, "old"))]


def test_a_job_that_stores_makes_room_first(place: SharedShards, built: Path) -> None:
    fill(place, built, 6)
    limited = SharedShards(place.uri, place.team, 3 * object_of(place, "0").stat().st_size)
    counts = stored(limited, built, "new")
    assert (counts.stored, counts.evicted) == (1, 5)
    assert object_of(place, "new").exists()
    assert left(place, 6) == [5]


def test_shards_are_fetched_whole_or_not_at_all_beside_an_evictor(place: SharedShards, built: Path, tmp_path: Path) -> None:
    store = fill(place, built, 30)
    tier = Tier(place)

    def fetch(number: int) -> bool:
        path = tmp_path / f"fetched-{number}"
        found = tier.fetch(wanted(path, str(number)))
        assert not found or path.read_bytes() == CONTENT
        return found

    with ThreadPoolExecutor(8) as threads:
        evicting = threads.submit(evict, store, place.team, 0, now=10_000)
        found = list(threads.map(fetch, range(30)))
    assert evicting.result().shards == 30
    counts = tier.finish()
    assert counts.fetched == sum(found)
    assert counts.missing + counts.fetched == 30
    assert not counts.problem


# --- the place and the counts


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"TUNEYARD_SHARED_SHARDS": "tier"}, "not an absolute path"),
        ({"TUNEYARD_SHARED_SHARDS": "ftp://host/tier"}, "ftp:// is not a known kind of storage"),
        ({"TUNEYARD_SHARED_SHARDS": "s3://key:secret@bucket/tier"}, "the URI contains credentials"),
        ({"TUNEYARD_SHARED_SHARDS": "s3:///tier"}, "names no bucket"),
        ({"TUNEYARD_SHARED_SHARDS": "s3://bucket/a/../b"}, "has '..' in it"),
        ({"TUNEYARD_SHARED_SHARDS": "/tier", "TUNEYARD_SHARED_SHARDS_SIZE": "much"}, "'much' is not a size"),
    ],
)
def test_a_place_that_is_none_is_refused(environment: dict[str, str], said: str) -> None:
    with pytest.raises(BadInput, match=said) as refused:
        SharedShards.from_environment(environment, "maps")
    assert "secret" not in str(refused.value)


def test_the_environment_names_the_place() -> None:
    assert SharedShards.from_environment({}, "maps") is None
    assert SharedShards.from_environment({"TUNEYARD_SHARED_SHARDS": "", "TUNEYARD_SHARED_SHARDS_SIZE": "1Gi"}, "maps") is None
    named = {"TUNEYARD_SHARED_SHARDS": "s3://tier/shards", "TUNEYARD_SHARED_SHARDS_SIZE": "2Gi"}
    assert SharedShards.from_environment(named, "maps") == SharedShards("s3://tier/shards", "maps", 2 << 30)


def test_counts_of_data_workers_are_added(place: SharedShards) -> None:
    here = Counts(found=10, fetched=1, problem="").about(place)
    both = with_counts(here, Counts(fetched=4, built=2, failed=1, problem="it is away"))
    assert (both["found"], both["fetched"], both["built"]) == (4, 5, 2)
    assert both["sentence"].endswith("(1 failed): it is away")
    assert both["team"] == "maps"
