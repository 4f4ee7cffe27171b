"""A simulated week of nightly Schedules on a real hub over two real member clusters, and 20 equal nights with noise.

`python benchmarks/scheduled_week.py [--nights 20] [--seed 1] [--out docs/benchmarks/scheduled_week.md]`: boots the API servers of a hub and
two members on this machine (docs/test-clusters.md). The clock of Schedules is handed in, attempts end by themselves, and the hub is
killed by SIGKILL at random moments. tests/week_story.py is what happens.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import sys
import time
from contextlib import nullcontext
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.hubs import prepared
from tests.scheduled_week import Week, doubled, killed_at_random, week_on
from tests.testcluster import Hub, Member
from tests.testcluster.clusters import Clusters
from tests.testcluster.fake_nodes import FakeNodes
from tests.testcluster.leftovers import own_folder, remove
from tests.week_story import BEGIN, check, lines_of, noisy_nights, tell

LED_S = (1.0, 20.0)
"""Bounds of the time that a hub leads before it is killed."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=20, help="equal nights with noise")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-kills", action="store_true", help="leave the hub alone")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
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
            text = page(week, f"python benchmarks/scheduled_week.py {shlex.join(sys.argv[1:])}".strip(), time.monotonic() - began)
    finally:
        clusters.close()
        remove(folder)
    print(text)
    if asked.out is not None:
        asked.out.write_text(text)


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
    for view in sorted(week.views(), key=lambda view: view.name):
        lines += [
            f"## {view.name}: {view.cron}, {view.zone}",
            "",
            "| due there | kind | verdict | exact_match | why |",
            "|---|---|---|---:|---|",
        ]
        for night in lines_of(view):
            figure = "" if night.figure is None else f"{night.figure:.3f}"
            lines.append(f"| {night.local} | {night.kind} | {night.verdict} | {figure} | {night.message} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
