"""The pictures of docs/, made from real runs: `python -m scripts.pictures [--only plan|tune|report …]` (or `make pictures`).

Terminals become SVG, so that their text stays text; the report is drawn by Chromium. `PICTURES` is the whole list: a test compares it with
the folder and with the pages.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path

from benchmarks.defaults_model import small_chat_model
from benchmarks.new_user_journeys import SMALL, bring
from rich.console import Console
from rich.text import Text
from tests.servers.chromium import browser, look_at
from tests.servers.consoles import console, url_of

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "pictures"
LARGEST_BYTES = 200_000
_FRAME = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: {char_height}px; \
line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""rich's own frame loads a font from the network."""


@dataclass(frozen=True)
class Picture:
    """`command`: what a user types for it, in the folder that `make` is given; `make` returns the content of the file."""

    file: str
    command: str
    make: Callable[[Picture, Path], bytes]
    columns: int = 100


def _terminal(picture: Picture, folder: Path) -> bytes:
    """The command's own output below a prompt."""
    return drawn(picture, _run(picture.command, folder, picture.columns))


def drawn(picture: Picture, shown: str) -> bytes:
    """SVG of a terminal that shows this output of the picture's command."""
    console = Console(record=True, width=picture.columns, file=StringIO(), force_terminal=True, color_system="truecolor", highlight=False)
    console.print(Text(f"$ {picture.command}", style="bold"))
    console.print(Text.from_ansi(shown.rstrip()))
    name = Path(picture.file).stem
    svg = console.export_svg(title=shlex.split(picture.command)[0], code_format=_FRAME, unique_id=f"terminal-{name}")
    return "\n".join(line.rstrip() for line in svg.splitlines()).encode() + b"\n"


def _planned(picture: Picture, folder: Path) -> bytes:
    """README's example with as many chats of usual length as a small company has."""
    chats = [json.loads(line)["messages"] for line in (folder / "chats.jsonl").read_text(encoding="utf-8").splitlines()]
    lines = (json.dumps({"messages": chats[n % len(chats)] * 10}) + "\n" for n in range(12_000))
    (folder / "chats.jsonl").write_text("".join(lines), encoding="utf-8")
    return _terminal(picture, folder)


def _tuned(picture: Picture, folder: Path) -> bytes:
    _small_job(folder)
    return _terminal(picture, folder)


def _reported(picture: Picture, folder: Path) -> bytes:
    _small_job(folder)
    _run(picture.command, folder)
    return look_at(folder / "runs" / "first" / "report.html", folder, width=1000).screenshot


def _console(path: str, *, width: int = 1100, dark: bool = False) -> Callable[[Picture, Path], bytes]:
    """The part that a window shows of a page of the console. `path` may hold {run} and {runs}."""

    def make(_picture: Picture, folder: Path) -> bytes:
        recorded, runs = _recorded_runs()
        with console(recorded) as address, browser(folder) as tab:
            page = path.format(run=runs[0], runs="&".join(f"run={run}" for run in runs))
            tab.look(f"{address}{page}", width=width, dark=dark, pictured=False)
            return tab.picture(whole=False)

    return make


def _hub_page(picture: Picture, _folder: Path) -> bytes:
    """A page of the console in its pod, over jobs in pods."""
    return (_hub_pages() / picture.file).read_bytes()


@cache
def _hub_pages() -> Path:
    """A folder with the pictures that the test of the console in pods makes. Made once."""
    folder = Path(tempfile.mkdtemp(prefix="tuneyard-pictures-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    test = "tests/cluster/test_console_in_pods.py::test_all_pages_of_a_hub_while_a_job_runs_and_at_its_end"
    command = [sys.executable, "-m", "pytest", "-m", "long", "-q", test]
    if subprocess.run(command, cwd=ROOT, env={**os.environ, "TUNEYARD_TEST_PICTURES": str(folder)}, check=False).returncode:
        sys.exit(f"{shlex.join(command)} failed: there are no pictures of a hub")
    return folder


@cache
def _recorded_runs() -> tuple[Path, list[str]]:
    """A folder with the history of two real runs with other learning rates, and of a third that fails; ids of the two. Made once."""
    folder = Path(tempfile.mkdtemp(prefix="tuneyard-pictures-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    bring(folder)
    _small_job(folder)
    job = (folder / "job.yaml").read_text(encoding="utf-8")
    history = {"TUNEYARD_HISTORY": "on", "TUNEYARD_HISTORY_URL": url_of(folder)}
    for name, rate in (("first", "0.001"), ("slower", "0.0003")):
        (folder / "job.yaml").write_text(re.sub("learningRate: [0-9.]+", f"learningRate: {rate}", job), encoding="utf-8")
        _run(f"tuneyard run job.yaml --out runs/{name}", folder, variables=history)
    (folder / "export.yaml").write_text(_FAILS, encoding="utf-8")
    _run("tuneyard run export.yaml --out runs/export", folder, variables=history, may_fail=True)
    with sqlite3.connect(folder / "history.db") as rows:
        return folder, [row[0] for row in rows.execute("select id from jobs where status = 'succeeded' order by started_at")]


def _small_job(folder: Path) -> None:
    """The job that `init` writes for a table, and a small model on disk."""
    shutil.copytree(small_chat_model(ROOT / "build" / "defaults" / "small"), folder / SMALL)
    _run(f"tuneyard init --data faq.csv --model {SMALL} --out job.yaml --force", folder)


_FAILS = """\
apiVersion: tuneyard.dev/v1alpha1
kind: JobSpec
metadata: {name: export-chats}
spec:
  tasks:
  - name: export
    process: {command: [sh, -c, "echo 'export: no table chats in this database'; exit 3"]}
"""
_PLAN = "tuneyard plan job.yaml --sku h100 --sku a100 --workers 8 --price h100=2.5 --price a100=1.8"
_ON_A_HUB = "helm upgrade tuneyard-hub charts/tuneyard-hub -n tuneyard-system --reset-then-reuse-values --set console.enabled=true"
PICTURES = (
    Picture("plan.svg", _PLAN, _planned),
    Picture("tune.svg", "tuneyard tune job.yaml --trials 12 --minutes 4", _tuned, columns=124),
    Picture("report.png", "tuneyard run job.yaml --out runs/first", _reported),
    Picture("console-job.png", "tuneyard console", _console("/jobs/faq?run={run}")),
    Picture("console-compare.png", "tuneyard console", _console("/compare?{runs}", dark=True)),
    Picture("console-phone.png", "tuneyard console", _console("/", width=360)),
    Picture("console-hub-job.png", _ON_A_HUB, _hub_page),
    Picture("console-hub-queue.png", _ON_A_HUB, _hub_page),
    Picture("console-hub-phone.png", _ON_A_HUB, _hub_page),
)


def main() -> None:
    names = {Path(picture.file).stem: picture for picture in PICTURES}
    parser = argparse.ArgumentParser(description="Makes the pictures of docs/ from real runs.")
    parser.add_argument("--only", choices=[*names], action="append", help="may be repeated (default: all)")
    FOLDER.mkdir(exist_ok=True)
    for name in parser.parse_args().only or names:
        print(f"{name}: {names[name].command}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="tuneyard-pictures-") as folder:
            bring(Path(folder))
            content = names[name].make(names[name], Path(folder))
        if len(content) > LARGEST_BYTES:
            sys.exit(f"{names[name].file} has {len(content):,} bytes, more than {LARGEST_BYTES:,}")
        (FOLDER / names[name].file).write_bytes(content)


def _run(command: str, folder: Path, columns: int = 100, *, variables: Mapping[str, str] | None = None, may_fail: bool = False) -> str:
    """What the command prints on both streams, by someone without history. Ends this script where it fails, unless it may."""
    own = {"COLUMNS": str(columns), "TUNEYARD_HISTORY": "off", "HF_HUB_OFFLINE": "1", "HOME": str(folder), **(variables or {})}
    environment = {**os.environ, **own, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        shlex.split(command), cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode and not may_fail:
        sys.exit(f"{command}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


if __name__ == "__main__":
    main()
