"""The hub is upgraded and rolled back while jobs run: real other versions of hub, CRDs and pods, and what became of every attempt.

`python benchmarks/upgrades.py [--only played pods]`: writes docs/benchmarks/upgrades.md, and takes about 25 minutes. `played`: jobs in
every phase on an API server without pods. `pods`: training on one cluster with both charts (docs/test-clusters.md; needs root).
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.training_cases import write_page  # noqa: E402 -- found by the line above
from tests.clusters.hubs import until  # noqa: E402
from tests.clusters.next_version import next_version  # noqa: E402
from tests.clusters.upgraded_pods import Home, home, quota, template, train_job  # noqa: E402
from tests.clusters.upgrades import House, Outcome, Story, house, told  # noqa: E402
from tests.clusters.versions import BEFORE, TREE, Version, revision  # noqa: E402
from tests.clusters.watched import broken, made  # noqa: E402

BEFORE_TEMPLATES, BEFORE_THE_WIRE, BEFORE_FORKS = "c322e17", "cacf303", "ae7bccf"
WHAT = {
    BEFORE: "the revision before",
    BEFORE_TEMPLATES: "before ModelTemplates",
    BEFORE_THE_WIRE: "before one door for statuses, and one grace",
    BEFORE_FORKS: "three days older",
    "next": "made of the tree: new fields at every depth, a new phase, more in RayJobs",
}
EXPLAINED = """\
A job of every phase is there when the first hub goes: running, starting, with a second task, by a ModelTemplate (where the old hub knows
them), waiting, suspended, waiting for another attempt, being cancelled, suspended and preempted; and a Schedule of every minute. CRDs are
upgraded first, then a replica of the new version starts beside the leader, which ends, or (`frozen`) stands still until the new one leads
and then goes on. While there is no leader, one waiting job is cancelled, one is deleted, and a new one is submitted. Then the old hub
comes back, under the new CRDs, and all jobs end.

- *Steady attempts kept*: attempts of jobs from which the story takes none, which ran when the first hub went, and ended as they began:
  under one RayJob.
- *Laws broken*: RayJobs made twice; attempts forgotten, placed beside another of their task, or with another token or name; steps or
  checkpoints that go back; ends that change; minutes without a run of the Schedule. Judged by every version of every JobSpec and RayJob
  (`tests/clusters/watched.py`).
- *RayJobs made* differs with the preempted job, which starts whenever a machine is free, and with the job that is tried again."""
_SETTLE_S = 4
STEPS = 160
Change = Callable[[Story], None]


def undisturbed(story: Story) -> None:
    story.edit_without_a_leader()
    story.go_on()
    story.turn_back()
    time.sleep(_SETTLE_S)
    story.end()


def replaced(old: Version, new: Version, *, freeze: bool = False, waits: list[str] | None = None) -> Change:
    """CRDs, then a replica of the new version beside the old leader, which then goes; and back, with the CRDs left as they are.

    `freeze`: the old leader stands still until another leads, and then goes on; `waits` gets the jobs that the old hub cannot read after
    the roll-back, which wait for the new one.
    """

    def change(story: Story) -> None:
        here = story.house
        (first,) = here.replicas.values()
        here.apply_crds(new)
        second = here.start(new)
        time.sleep(_SETTLE_S)
        if freeze:
            first.processes.send(first.name, signal.SIGSTOP)
        else:
            first.stop()
        story.edit_without_a_leader()
        until(lambda: here.leads(second), "the new hub leads")
        if freeze:
            time.sleep(_SETTLE_S)
            first.processes.send(first.name, signal.SIGCONT)
            time.sleep(_SETTLE_S)
            first.stop()
        story.go_on()
        third = here.start(old)
        time.sleep(_SETTLE_S)
        second.stop()
        until(lambda: here.leads(third), "the old hub leads again")
        story.turn_back()
        time.sleep(2 * _SETTLE_S)
        stuck = here.stalled()
        if stuck:
            fourth = here.start(new)
            third.stop()
            until(lambda: here.leads(fourth), "the new hub leads again")
        if waits is not None:
            waits.extend(stuck)
        story.end()

    return change


def fresh(here: House, version: Version) -> None:
    """A hub of a version that leads, over its CRDs and no jobs."""
    here.templates = version.has_templates
    here.apply_crds(version)
    first = here.start(version)
    until(lambda: here.leads(first), "a hub leads")


def row(way: str, old: str, new: str, outcome: Outcome, whole: Outcome, waits: list[str]) -> str:
    kept = len(outcome.went) - len({words.partition(":")[0] for words in outcome.lost})
    odd = sorted(name for name in whole.phases if outcome.phases.get(name) != whole.phases[name])
    notes = [*outcome.lost[:2], *(f"…{len(outcome.lost) - 2} more" for _ in outcome.lost[2:3]), *outcome.failures[:2]]
    notes += [f"until the newer hub is back these wait: {', '.join(waits)}"] if waits else []
    cells = [way, old, new, f"{kept} of {len(outcome.went)}", outcome.made, len(outcome.broken), ", ".join(odd) or "all", "; ".join(notes)]
    return f"| {' | '.join(map(str, cells))} |"


def played(folder: Path, next_one: Version, chosen: Sequence[str]) -> Iterator[str]:
    tries = [(old, TREE, False) for old in map(revision, (BEFORE, BEFORE_TEMPLATES, BEFORE_THE_WIRE, BEFORE_FORKS))]
    tries += [(TREE, next_one, False), (TREE, next_one, True), (revision(BEFORE_TEMPLATES), TREE, True)]
    yield "| the hub | from | to, and back | steady attempts kept | RayJobs made | laws broken | ends as undisturbed | notes |"
    yield "|---|---|---|---|---|---|---|---|"
    with house(folder / "undisturbed") as here:
        fresh(here, TREE)
        whole = told(here, undisturbed)
        yield row("undisturbed", "tree", "", whole, whole, [])
    for number, (old, new, freeze) in enumerate(each for each in tries if each[0].name in chosen):
        waits: list[str] = []
        with house(folder / str(number)) as here:
            fresh(here, old)
            outcome = told(here, replaced(old, new, freeze=freeze, waits=waits))
        print(old.name, new.name, outcome, flush=True)
        yield row("frozen, then thawed" if freeze else "replaced", old.name, new.name, outcome, whole, waits)


def on_pods(here: Home, old: Version, new: Version, whole: list[float]) -> Iterator[str]:
    """Jobs that train through an upgrade and a roll-back: each with the versions of its hubs and of its pods."""
    began = time.monotonic()
    named = f"{old.name}-{new.name}".lower()
    jobs = {
        f"through-{named}": f"hub {old.name}, {new.name}; pods {old.name}",
        f"preempted-{named}": f"hub {old.name}, {new.name}, {old.name}; pods {old.name}, then {new.name}",
        f"urgent-{named}": f"hub {new.name}; pods {new.name}",
        f"waiting-{named}": f"hub {old.name} (waits), {new.name}, {old.name}; pods {new.name}",
        f"resting-{named}": f"hub {old.name}; pods {new.name}",
        f"behind-{named}": f"hub {new.name}; pods {old.name}",
    }
    through, preempted, urgent, waiting, resting, behind = jobs
    here.use_pods_of(old)
    here.upgrade(old, crds=False)
    here.watch()
    here.submit(train_job(through, steps=STEPS, priority="normal"))
    here.reaches(through, 1)
    here.submit(train_job(preempted, steps=STEPS, priority="low"), train_job(resting, steps=STEPS, suspend=True))
    here.reaches(preempted, 8)
    here.submit(train_job(urgent, steps=STEPS, priority="high"))
    here.wait("a preemption is under way", lambda: here.attempts(preempted)[0]["stopping"])
    here.submit(train_job(waiting, steps=STEPS, template=old.has_templates))
    here.use_pods_of(new)
    here.upgrade(new)
    here.reaches(waiting, 8)
    here.upgrade(old, crds=False)
    here.patch(resting, suspend=False)
    here.ended(through, urgent, waiting, resting, preempted)
    here.use_pods_of(old)
    here.upgrade(new)
    here.submit(train_job(behind, steps=STEPS))
    here.ended(*jobs)
    seen_jobs, seen_runs = here.watched()
    wrong, runs = broken(seen_jobs, seen_runs), made(seen_runs)
    print(named, f"{time.monotonic() - began:.0f} s", wrong, flush=True)
    for name, versions in jobs.items():
        own = here.attempts(name)
        losses = here.losses(name)
        equal = "all" if losses == whole else f"NO ({sum(a == b for a, b in zip(losses, whole, strict=False))} of {len(whole)})"
        ends = ", ".join(each.get("failure") or each["phase"] for each in own)
        cells = [name.partition("-")[0], versions, here.status(name)["phase"], len(runs[name]), ends, equal]
        yield f"| {' | '.join(map(str, cells))} |"
        here.member.kubectl("delete", "jobspec", name, "--wait=false")
    yield f"| laws broken | {len(wrong)} {'; '.join(wrong[:3])} | | | | |"


def pods(folder: Path, next_one: Version, chosen: Sequence[str]) -> Iterator[str]:
    yield "| job | versions | ends | RayJobs made | attempts | losses as undisturbed |"
    yield "|---|---|---|---|---|---|"
    with home(folder) as here:
        here.member.apply(template(), quota(2))
        here.submit(train_job("undisturbed", steps=STEPS))
        here.ended("undisturbed")
        whole = here.losses("undisturbed")
        yield f"| undisturbed | hub tree; pods tree | {here.status('undisturbed')['phase']} | 1 | Succeeded | |"
        pairs = ((revision(BEFORE_THE_WIRE), TREE), (TREE, next_one))
        for old, new in (each for each in pairs if each[0].name in chosen):
            yield from on_pods(here, old, new, whole)


PARTS: dict[str, tuple[str, Callable[[Path, Version, Sequence[str]], Iterator[str]]]] = {
    "played": ("Jobs in every phase, attempts played", played),
    "pods": ("Training on real pods", pods),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--begin", nargs="*", default=[*WHAT, "tree"], metavar="VERSION", help="what the first hub is, such as tree")
    arguments = parser.parse_args()
    lines: list[str] = ["The versions:", "", *(f"- `{name}`: {what}." for name, what in WHAT.items()), "", EXPLAINED]
    with tempfile.TemporaryDirectory(prefix="tyu") as text:
        folder = Path(text)
        folder.chmod(0o755)
        next_one = next_version(folder / "next")
        for name in arguments.only:
            title, part = PARTS[name]
            lines += ["", f"## {title}", ""]
            for line in part(folder / name, next_one, arguments.begin):
                print(line, flush=True)
                lines.append(line)
        shutil.rmtree(folder / "next")
        write_page("upgrades", "Upgrades and roll-backs with running jobs", lines)


if __name__ == "__main__":
    main()
