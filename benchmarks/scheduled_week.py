"""A simulated week of nightly Schedules on a real hub over two real member clusters, and 20 equal nights with noise.

`python benchmarks/scheduled_week.py [--nights 20] [--seed 1] [--out docs/benchmarks/scheduled_week.md]`: boots the API servers of a hub and
two members on this machine (docs/test-clusters.md). The clock of Schedules is handed in, attempts end by themselves, and the hub is
killed by SIGKILL at random moments. tests/clusters/week_story.py is what happens.

`--pods`: the same week without the 20 nights. Attempts are pods on members with a real node, which score rows at an endpoint
(tests/clusters/week_with_pods.py). `--out` replaces the part of the page that is about such runs.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.clusters.hubs import prepared
from tests.clusters.scheduled_week import Week, doubled, killed_at_random, week_on
from tests.clusters.week_story import BEGIN, check, line_of, lines_of, noisy_nights, tell
from tests.clusters.week_with_pods import ROWS, week_with_pods
from tests.testcluster import Hub, Member
from tests.testcluster.clusters import Clusters
from tests.testcluster.fake_nodes import FakeNodes
from tests.testcluster.install import install
from tests.testcluster.leftovers import own_folder, remove
from tests.testcluster.processes import Processes

LED_S = (1.0, 20.0)
"""Bounds of the time that a hub leads before it is killed."""
LED_WITH_PODS_S = (30.0, 90.0)
WITH_PODS = "## With pods"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=20, help="equal nights with noise")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-kills", action="store_true", help="leave the hub alone")
    parser.add_argument("--pods", action="store_true", help="attempts are real pods, and nights with noise are left out")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    text = with_pods(asked) if asked.pods else without_pods(asked)
    print(text)
    if asked.out is not None:
        whole = asked.out.read_text() if asked.out.exists() else ""
        played, mark, pods = whole.partition(WITH_PODS)
        asked.out.write_text(played + text if asked.pods else text + mark + pods)


def with_pods(asked: argparse.Namespace) -> str:
    """The week on members with real nodes."""
    folder = own_folder()
    clusters = Clusters.in_folder(folder, 2)
    try:
        clusters.start()
        storage = install(folder, clusters)
        os.environ.update(storage.environment)
        began = time.monotonic()
        with week_with_pods(clusters, storage, BEGIN) as week:
            with nullcontext() if asked.no_kills else killed_at_random(week, LED_WITH_PODS_S, asked.seed):
                tell(week)
            check(week)
            return page_with_pods(week, command_line(), time.monotonic() - began)
    finally:
        Processes(folder / "processes").end_all()
        clusters.close()
        remove(folder)


def without_pods(asked: argparse.Namespace) -> str:
    """The week and the equal nights, with attempts that are played."""
    folder = own_folder()
    members = tuple(Member(f"member-{n}", folder / f"member-{n}", fake=(FakeNodes("gpu", 4),), with_kuberay=False) for n in (1, 2))
    clusters = Clusters(Hub("hub", folder / "hub"), members)
    try:
        clusters.start()
        prepared(clusters)
        began = time.monotonic()
        with week_on(clusters, BEGIN) as week:
            with nullcontext() if asked.no_kills else killed_at_random(week, LED_S, asked.seed):
                tell(week)
                noisy_nights(week, asked.nights, asked.seed)
            check(week)
            assert {night.verdict for night in lines_of(week.view("noisy"))} == {"good"}, "an alarm without a cause"
            return page(week, command_line(), time.monotonic() - began)
    finally:
        clusters.close()
        remove(folder)


def command_line() -> str:
    return f"python benchmarks/scheduled_week.py {shlex.join(sys.argv[1:])}".strip()


def page(week: Week, command: str, took_s: float) -> str:
    """The page: each run of each Schedule, and what was lost or doubled."""
    led = f"once for the runs that are missed, {week.kills - 1} times after it had led for {LED_S[0]:g} to {LED_S[1]:g} s, at random"
    lines = [
        "# A week of Schedules",
        "",
        f"`{command}`, {date.today()},",
        f"Python {platform.python_version()}, {os.cpu_count()} cores, no GPU; {took_s / 60:.0f} minutes, beside other work.",
        "",
        "One hub and two members: API servers and etcd are real, their nodes are not. No pods run: each attempt reports its end, with the",
        "figure of the night, once its RayJob is there. The clock of Schedules is handed in; all else follows real time.",
        f"The hub was killed by SIGKILL {week.kills} times: {led}.",
        f"Runs with a RayJob: {len(week.rayjobs)}; with more than one: {len(doubled(week))}.",
        "",
    ]
    return "\n".join([*lines, *tables(week, "##")])


def page_with_pods(week: Week, command: str, took_s: float) -> str:
    """The part of the page about runs with pods."""
    least, most = LED_WITH_PODS_S
    led = f"once for the runs that are missed, {week.kills - 1} times after it had led for {least:g} to {most:g} s, at random"
    lines = [
        WITH_PODS,
        "",
        f"`{command}`, {date.today()},",
        f"Python {platform.python_version()}, {os.cpu_count()} cores, no GPU; {took_s / 60:.0f} minutes, beside other work.",
        "",
        "One hub and two members with a real node each. Attempts are pods: KubeRay, kubelet and containerd start each one's head, and it",
        f"scores {ROWS} rows from S3 at an endpoint of this machine, whose answers are right for the share of the night. Each night has",
        "the same rows, so that runs are compared row by row. A run that goes on waits for its endpoint.",
        "",
        "Clocks: the one of Schedules is handed in, and jumps to the next night once all runs of the last have ended. API servers,",
        "kubelets, pods and the hub's leases have real time. So due times, missed runs, changes of clocks and the order of runs are those",
        "of the week. The page shows nothing of what time itself does to a cluster, such as certificates that expire or disks that fill.",
        "",
        f"The hub was killed by SIGKILL {week.kills} times: {led}.",
        f"Runs with a RayJob: {len(week.rayjobs)}; with more than one: {len(doubled(week))}.",
        "",
    ]
    return "\n".join([*lines, *tables(week, "###")])


def tables(week: Week, heading: str) -> Iterator[str]:
    """A table for each Schedule. `heading`: its marks."""
    for view in sorted(week.views(), key=lambda view: view.name):
        yield from (f"{heading} {view.name}: {view.cron}, {view.zone}", "")
        yield from ("| due there | kind | verdict | exact_match | why |", "|---|---|---|---:|---|")
        for run in sorted(view.status.runs, key=lambda run: (run.due, run.kind)):
            night = line_of(view, run)
            figure = "" if night.figure is None else f"{night.figure:.3f}"
            why = night.message or (f"the rows are those of {run.rows_compared_with}" if run.rows_compared_with else "")
            yield f"| {night.local} | {night.kind} | {night.verdict} | {figure} | {why} |"
        yield ""


if __name__ == "__main__":
    main()
