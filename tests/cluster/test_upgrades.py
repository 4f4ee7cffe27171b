"""A hub of the previous revision is replaced by the tree's under running jobs, and comes back; and two that lead at once."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.test_charts import SYSTEM
from tests.clusters.hubs import API, RAYJOBS, jobspec, phases, rayjobs, submit_all, until
from tests.clusters.players import Player, playing
from tests.clusters.upgraded_pods import Home, quota, train_job
from tests.clusters.upgrades import FINAL, NODES, House, house
from tests.clusters.versions import BEFORE, TREE, NotInHistory, Version, revision
from tests.clusters.watched import Watch, broken, made
from tests.testcluster import Member, Unavailable
from tests.testcluster.install import Storage

STEPS = 90
SECOND = "second-hub"
"""Namespace of another hub's Lease."""


@pytest.fixture(scope="module")
def before() -> Version:
    try:
        return revision(BEFORE)
    except NotInHistory as reason:
        pytest.skip(f"NO PREVIOUS REVISION: {reason}")


@pytest.fixture
def stage(home: Member, storage_of: tuple[Member, Storage], monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """The cluster with both charts; the hub is the tree's again afterwards."""
    for name, value in storage_of[1].environment.items():
        monkeypatch.setenv(name, value)
    found = Home(home, storage_of[1])
    found.prepare()
    yield found
    found.use_pods_of(TREE)
    found.upgrade(TREE)
    home.kubectl("delete", "jobspecs,teams", "--all", "-n", "default", "--timeout=240s")


@pytest.mark.long
def test_a_job_trains_through_an_upgrade_and_a_roll_back_and_one_that_waited_ends_like_it(stage: Home, before: Version) -> None:
    """In `make test`: `test_what_another_version_of_the_hub_has_written_is_kept_or_left_alone` and
    `test_a_hub_that_is_killed_anywhere_loses_and_doubles_nothing`, on API servers without pods.
    """
    stage.use_pods_of(before)
    stage.upgrade(before)
    stage.member.apply(quota(1))
    stage.watch()
    stage.submit(train_job("trains", steps=STEPS))
    stage.reaches("trains", 0)
    stage.submit(train_job("waits", steps=STEPS))
    stage.reaches("trains", 3)
    stage.use_pods_of(TREE)
    stage.upgrade(TREE)
    stage.upgrade(before, crds=False)
    stage.ended("trains", "waits")
    jobs, runs = stage.watched()
    assert broken(jobs, runs) == []
    assert {name: len(names) for name, names in made(runs).items()} == {"trains": 1, "waits": 1}, stage.words()
    assert [stage.status(name)["phase"] for name in ("trains", "waits")] == ["Succeeded", "Succeeded"], stage.words()
    assert len(stage.losses("trains")) == STEPS
    assert stage.losses("trains") == stage.losses("waits"), "with the pods of the one version and of the other"


@pytest.fixture
def two(tmp_path: Path) -> Iterator[House]:
    """A cluster without pods, where a hub may lead in either of two namespaces."""
    try:
        with house(tmp_path) as found:
            secret = found.member.api.get(f"/api/v1/namespaces/{SYSTEM}/secrets/member-1-kubeconfig")["data"]["kubeconfig"]
            text = base64.b64decode(secret).decode()
            metadata = {"name": "member-1-kubeconfig", "namespace": SECOND}
            copy = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"kubeconfig": text}}
            found.member.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SECOND}})
            found.member.apply(copy)
            yield found
    except Unavailable as reason:
        pytest.skip(f"NO CLUSTER: {reason}")


@pytest.mark.long
def test_two_hubs_of_two_versions_that_both_lead_start_nothing_twice(two: House, before: Version) -> None:
    """A status is written over the version that was read: of two decisions about a job one is refused, and made again.

    In `make test`: `test_two_hubs_that_both_lead_start_nothing_twice`, in memory.
    """
    jobs, runs = Watch(two.member.api, f"{API}/jobspecs"), Watch(two.member.api, RAYJOBS)
    two.start(before)
    two.start(TREE, namespace=SECOND)
    names = [f"job-{number}" for number in range(3 * NODES)]
    with playing(Player(two.member)) as player:
        submit_all(two.member, [jobspec(name) for name in names])
        until(lambda: len(rayjobs(two.member)) >= NODES, "all machines are taken")
        player.finale = True
        until(lambda: all(phase in FINAL for phase in phases(two.member).values()), "every job ends")
    seen_jobs, seen_runs = jobs.close(), runs.close()
    assert broken(seen_jobs, seen_runs) == []
    assert made(seen_runs).keys() == set(names)
    assert {name: own for name, own in made(seen_runs).items() if len(own) > 1} == {}
    assert set(_phases(seen_jobs)) == {"Succeeded"}


def _phases(jobs: list[Any]) -> list[str]:
    """The last phase of every job."""
    last = {each.name: (each.item.get("status") or {}).get("phase", "") for each in jobs}
    return list(last.values())
