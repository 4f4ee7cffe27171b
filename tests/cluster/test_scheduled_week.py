"""A week of Schedules on a real hub over two members, with a hub that is killed at random moments.

Clocks change, runs are missed, forbidden, replaced and backfilled, and one regresses. `benchmarks/scheduled_week.py` adds 20 equal nights.
"""

from __future__ import annotations

import pytest
from tests.cluster.conftest import ApiServers
from tests.hubs import prepared
from tests.scheduled_week import doubled, killed_at_random, week_on
from tests.testcluster.fake_nodes import FakeNodes
from tests.week_story import BEGIN, EUROPE_RUNS, NIGHTS, SYDNEY, lines_of, tell


@pytest.mark.long
def test_a_week_on_real_clusters_with_a_hub_that_is_killed(api_servers: ApiServers) -> None:
    clusters = api_servers(2, [FakeNodes("gpu", 4)])
    prepared(clusters)
    with week_on(clusters, BEGIN) as week:
        with killed_at_random(week, (1, 25), seed=1):
            tell(week)
        europe, sydney = lines_of(week.view("europe")), lines_of(week.view("sydney"))
        reasons = clusters.hub.kubectl("get", "events", "-o", "jsonpath={.items[*].reason}").split()
    assert [
        (night.kind, night.verdict) for night in sorted(europe, key=lambda night: (night.kind != "scheduled", night.due))
    ] == EUROPE_RUNS
    assert [night.due for night in europe if night.kind == "scheduled"] == NIGHTS
    assert europe[1].local == "Sun 28 Mar 03:30 +0200", "half past two does not exist on this night"
    assert [(night.due, night.verdict) for night in sydney] == [(due, "good") for due in SYDNEY]
    assert [night.local for night in sydney[:2]] == ["Sun 04 Apr 02:30 +1100", "Mon 05 Apr 02:30 +1000"], "half past two comes twice"
    assert {"Regressed", "Recovered", "RunMissed"} <= set(reasons)
    assert not doubled(week)
    assert week.kills
