"""A new user, played: only commands that stand in the docs, in an empty home folder, from nothing to a tuned model that answers.

`python benchmarks/new_user.py [--journey clone|pip|clusters …] [--keep]`: writes docs/benchmarks/new_user.md. Each journey ends at its
first step that fails, with that step's output and the page that promised it. Journeys that are not chosen keep the figures of their last
run, which lie in `benchmarks/data/new_user.json`. Takes from the caller: settings of pip, and the caches of uv and of built programs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.defaults_model import small_chat_model  # noqa: E402 -- found by the line above
from benchmarks.new_user_journeys import CACHE, Journey, bring, journeys  # noqa: E402
from benchmarks.new_user_steps import Done, Shell, StepFailed  # noqa: E402
from benchmarks.training_cases import write_page  # noqa: E402

RESULTS = ROOT / "benchmarks" / "data" / "new_user.json"
NAMES = ("clone", "pip", "clusters")


def main() -> int:
    parser = argparse.ArgumentParser(description="Plays a new user: see the docstring.")
    parser.add_argument("--journey", choices=NAMES, action="append", help="only this one; may be repeated (default: all)")
    parser.add_argument("--keep", action="store_true", help="leave the folder of a journey where it is")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends like Ctrl-C: with clusters taken down
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in given.journey or NAMES:
        try:
            results[name] = played(name, keep=given.keep)
        except StepFailed as error:
            print(f"failed: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("stopped: what the journey has started is ended", file=sys.stderr)
            return 130
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    write_page("new_user", "A new user, from nothing to a model that answers", list(page(results)))
    return 0


def played(name: str, *, keep: bool) -> dict[str, Any]:
    """One journey in a folder of its own, which is removed. Raises StepFailed."""
    folder = Path(tempfile.mkdtemp(prefix=f"tuneyard-new-user-{name}-"))
    bring(folder / "brought")
    shutil.copytree(small_chat_model(ROOT / "build" / "defaults" / "small"), folder / "brought" / "small")
    _write_judge(folder / "brought")
    journey = journeys(folder / "brought")[name]
    shell = Shell(folder, _caches())
    load = os.getloadavg()[0]
    try:
        done = _steps(journey, shell)
    finally:
        _end(journey, shell)
        if keep:
            print(f"kept: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return {"date": date.today().isoformat(), "commit": _commit(), "load": [round(load, 1), round(os.getloadavg()[0], 1)], "steps": done}


def _steps(journey: Journey, shell: Shell) -> list[dict[str, Any]]:
    done: list[Done] = []
    for number, step in enumerate(journey.steps, start=1):
        print(f"{journey.name} {number}/{len(journey.steps)}  {step.command}", file=sys.stderr, flush=True)
        done.append(shell.take(step, number))
        print(f"    {done[-1].minutes:.1f} min: {step.leaves}", file=sys.stderr, flush=True)
        for line in done[-1].frightening:
            print(f"    looks like trouble: {line}", file=sys.stderr)
    return [each.to_dict() for each in done]


def _end(journey: Journey, shell: Shell) -> None:
    """Take down what stays up by itself, also after a failure or Ctrl-C."""
    if journey.ends_by is None:
        return
    print(f"{journey.name} end  {journey.ends_by.command}", file=sys.stderr, flush=True)
    try:
        shell.take(journey.ends_by, len(journey.steps) + 1)
    except StepFailed as error:
        print(f"not taken down: {error}", file=sys.stderr)


def _write_judge(folder: Path) -> None:
    """README's task `judge` on the user's own questions, as lines at the end of a job that `init` wrote."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    judge = readme.split("  - name: judge\n", 1)[1].split("```", 1)[0]
    (folder / "judge.yaml").write_text(
        f"  - name: judge\n{judge}".replace("holdout.parquet", str(folder / "holdout.parquet")), encoding="utf-8"
    )


def _caches() -> dict[str, str]:
    """Those of uv and pip: a user would download their packages once."""
    return {name: os.environ.get(name, str(CACHE / tool)) for name, tool in (("UV_CACHE_DIR", "uv"), ("PIP_CACHE_DIR", "pip"))}


def _commit() -> str:
    return subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def page(results: dict[str, Any]) -> Iterator[str]:
    """Lines of the page below its head."""
    yield "Every command stands in the page beside it, which a test checks. Each journey has a home folder of its own, empty at first."
    yield "What a user does by hand is in italics. A folder with a small chat model (`benchmarks/defaults_model.py`) stands in for a"
    yield "download, which this machine cannot make. The caches of uv and pip and the programs of Kubernetes were there. Aim: 5 minutes."
    yield "Answers are checked."
    about = journeys(Path())
    for name in NAMES:
        if name in results:
            yield from ("", f"## {name}", "", about[name].about, "", *_table(results[name]))


def _table(result: dict[str, Any]) -> Iterator[str]:
    before, after = result["load"]
    total = sum(step["minutes"] for step in result["steps"])
    yield f"{result['date']}, commit {result['commit']}, load average {before} before and {after} after, on two cores: {total:.1f} minutes."
    yield ""
    yield "| step | page | minutes | what a user has then |"
    yield "|---|---|---|---|"
    for step in result["steps"]:
        command = f"`{step['command']}`" if step["page"] else f"*{step['command']}*"
        link = f"[{Path(step['page']).stem}]({_relative(step['page'])})" if step["page"] else "by hand"
        yield f"| {command} | {link} | {step['minutes']:.1f} | {step['leaves']} |"
    said: Sequence[str] = [line for step in result["steps"] for line in step["frightening"]]
    if said:
        yield ""
        yield "Lines on the way that look like trouble:"
        yield ""
        yield from ("```", *dict.fromkeys(said), "```")


def _relative(page_name: str) -> str:
    return os.path.relpath(page_name, "docs/benchmarks")


if __name__ == "__main__":
    sys.exit(main())
