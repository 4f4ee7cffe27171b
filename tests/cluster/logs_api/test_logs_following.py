"""Following a job while the hub restarts, attempts change and the job is deleted."""

from __future__ import annotations

import pytest
from tests.builders.hub_jobs import make_attempt, make_failed_attempt
from tests.cluster.logs_api.replica import Say, Served
from tests.clusters.hub_client import JOBS, read_until, report, started
from tests.testcluster.waiting import wait_for

from tuneyard.tracking.task_logs import Chunk


def test_following_outlives_the_hub(served: Served, two_ranks: str, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    assert say("logs", two_ranks, "--rank", 0)[0] == 0
    output = served.hub.api.get(f"{JOBS.format('default')}/{two_ranks}")["status"]["output"]
    store = served.store(output, monkeypatch)
    with started("logs", two_ranks, "-f", "--rank", "0") as following:
        read_until(following.stdout, "more from rank-0")
        served.operator.kill()
        read_until(following.stderr, f"the hub at {served.hub.server} cannot answer just now")
        store.create(Chunk("train", 2, "rank-0", 3).path, b"while the hub was away\n")
        served.operator.start()
        read_until(following.stdout, "while the hub was away")
        attempts = [make_failed_attempt(1), make_failed_attempt(2), make_attempt(3)]
        report(served.hub, {"attempts": attempts}, two_ranks)
        store.create(Chunk("train", 3, "rank-0", 1).path, b"resumed\n")
        read_until(following.stdout, "resumed")
        report(served.hub, {"phase": "Succeeded", "message": "all tasks succeeded"}, two_ranks)
        out, err = following.communicate()
    assert (following.returncode, out) == (0, "")
    assert err.endswith(f"default/{two_ranks}: Succeeded: all tasks succeeded\n")
    wait_for("the API of logs", served.available)


@pytest.mark.usefixtures("say")
def test_following_ends_with_a_job_that_is_deleted(served: Served, two_ranks: str) -> None:
    with started("logs", two_ranks, "-f", "--rank", "0") as following:
        read_until(following.stdout, "more from rank-0")
        served.hub.kubectl("delete", "jobspec", two_ranks)
        out, err = following.communicate()
    assert (following.returncode, out) == (0, "")
    assert f"default/{two_ranks} was deleted, and the hub no longer reads its logs; they stay in s3://" in err
