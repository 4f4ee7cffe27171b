"""Parts side by side: lanes, order, limits, and nothing left running."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from tests.suite.parts import Part
from tests.suite.processor import Group
from tests.suite.scheduling import Ended, run_all
from tests.testcluster.processes import started_at


def part(name: str, script: str, *, after: tuple[str, ...] = (), beside: bool = False) -> Part:
    return Part(name=name, cpu_min=1, command=(sys.executable, "-c", script), after=after, beside=beside)


def ended(folder: Path, parts: list[Part], *, lanes: int = 2) -> tuple[dict[str, Ended], list[str]]:
    """Ends by name, and the order in which parts began (+) and ended (-)."""
    ends: dict[str, Ended] = {}
    order: list[str] = []

    def note(end: Ended) -> None:
        ends[end.part.name] = end
        order.append(f"-{end.part.name}")

    run_all(parts, folder, lanes=lanes, environment=os.environ, started=lambda each: order.append(f"+{each.name}"), ended=note)
    return ends, order


def test_exit_codes_and_output_are_kept_apart(tmp_path: Path) -> None:
    ends, _ = ended(tmp_path, [part("good", "print('fine')"), part("bad", "print('ouch'); raise SystemExit(3)")])

    assert {name: end.code for name, end in ends.items()} == {"good": 0, "bad": 3}
    assert [ends[name].log.read_text() for name in ("good", "bad")] == ["fine\n", "ouch\n"]


def test_one_lane_runs_one_part_at_a_time_and_what_runs_beside_takes_no_lane(tmp_path: Path) -> None:
    _, order = ended(tmp_path, [part("builds", "import time; time.sleep(1)", beside=True), part("a", ""), part("b", "")], lanes=1)

    assert order[:2] == ["+builds", "+a"]
    assert order.index("-a") < order.index("+b")


def test_a_part_waits_for_those_it_comes_after_also_where_they_fail(tmp_path: Path) -> None:
    _, order = ended(tmp_path, [part("late", "", after=("early", "not chosen")), part("early", "raise SystemExit(1)")])

    assert order == ["+early", "-early", "+late", "-late"]


def test_a_part_past_its_limit_is_interrupted_and_counts_as_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Part, "limit_s", 5.0)
    monkeypatch.setattr("tests.suite.scheduling._GRACE_S", 5.0)
    deaf = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)"
    # A shell that starts the tests in the background has them ignore Ctrl-C.
    hangs = "import signal, time; signal.signal(signal.SIGINT, signal.default_int_handler); time.sleep(600)"

    ends, _ = ended(tmp_path, [part("hangs", hangs), part("deaf", deaf)])

    assert all(end.timed_out and end.code != 0 for end in ends.values())
    assert "KeyboardInterrupt" in ends["hangs"].log.read_text()


def test_out_of_time_no_part_begins_and_those_that_run_are_interrupted(tmp_path: Path) -> None:
    hangs = "import signal, time; signal.signal(signal.SIGINT, signal.default_int_handler); print('up', flush=True); time.sleep(600)"
    ends: dict[str, Ended] = {}
    began = time.monotonic()

    waiting = run_all(
        [part("hangs", hangs), part("late", "")],
        tmp_path,
        lanes=1,
        environment=os.environ,
        started=lambda _: None,
        ended=lambda end: ends.update({end.part.name: end}),
        start_until=began + 1,
        run_until=began + 5,
    )

    assert [each.name for each in waiting] == ["late"]
    assert ends["hangs"].timed_out
    assert "KeyboardInterrupt" in ends["hangs"].log.read_text()


def test_what_a_part_leaves_running_ends_with_it(tmp_path: Path) -> None:
    leaves = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid)"

    ends, _ = ended(tmp_path, [part("leaves", leaves)])

    assert started_at(int(ends["leaves"].log.read_text())) is None


def test_the_time_of_a_process_that_outlives_its_parent_counts(tmp_path: Path) -> None:
    group = Group.made("probe")
    if group is None:
        pytest.skip("no control group can be made here: parts are measured by their own processes")
    group.remove()
    burns = "import time; until = time.process_time() + 1\nwhile time.process_time() < until: pass\nopen({!r}, 'w').close()"
    done = tmp_path / "done"
    script = (
        "import pathlib, subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', {burns.format(str(done))!r}], start_new_session=True)\n"
        f"while not pathlib.Path({str(done)!r}).exists(): time.sleep(0.05)"
    )

    ends, _ = ended(tmp_path, [part("daemon", script)])

    assert ends["daemon"].code == 0
    assert ends["daemon"].cpu_s >= 1
    assert not list(Path("/sys/fs/cgroup").rglob("tuneyard-*-daemon"))
