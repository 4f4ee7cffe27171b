"""Nights of Schedules on a real hub over real members, with a hub that is killed.

Clocks change, runs are missed, forbidden, replaced and backfilled, and one regresses.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from tests.cluster.conftest import ApiServers
from tests.clusters.hubs import prepared, remove_all
from tests.clusters.scheduled_week import doubled, killed_at_random, week_on
from tests.clusters.week_story import BEGIN, NIGHTS, check, lines_of, tell, tell_three_nights
from tests.testcluster.clusters import Clusters
from tests.testcluster.fake_nodes import FakeNodes


@pytest.fixture
def one_member(plain: Clusters) -> Iterator[Clusters]:
    """A hub without an operator, and one member."""
    clusters = Clusters(plain.hub, plain.members[:1])
    prepared(clusters)
    yield clusters
    remove_all(plain.hub, "clusters")


def test_nights_on_a_real_cluster_with_a_hub_that_was_away(one_member: Clusters) -> None:
    with week_on(one_member, NIGHTS[0] + timedelta(hours=1)) as week:
        tell_three_nights(week)
        nights = lines_of(week.view("europe"))
        remove_all(one_member.hub, "schedules", "jobspecs")
    assert [(night.due, night.verdict) for night in nights] == [*zip(NIGHTS[1:5], ("good", "regressed", "missed", "good"), strict=True)]
    assert nights[0].local == "Sun 28 Mar 03:30 +0200", "half past two does not exist on this night"
    assert not doubled(week)


@pytest.mark.long
def test_a_week_on_real_clusters_with_a_hub_that_is_killed(api_servers: ApiServers) -> None:
    clusters = api_servers(2, [FakeNodes("gpu", 4)])
    prepared(clusters)
    with week_on(clusters, BEGIN) as week:
        with killed_at_random(week, (0, 10), seed=1):
            tell(week)
        check(week)
    assert week.kills > 1
