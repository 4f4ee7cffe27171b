"""How files of people and exporters are read: each with the reading that is right for it, before and now.

`python benchmarks/real_files.py`: writes docs/benchmarks/real_files.md. `--tree FOLDER` reads them by the package in FOLDER/platform, and
keeps the verdicts in benchmarks/data/real_files.json as those of before.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.real_exports import GROUPS  # noqa: E402 -- found by the line above
from benchmarks.real_exports.case import Case  # noqa: E402

BEFORE = ROOT / "benchmarks" / "data" / "real_files.json"
READ, REFUSED = "read", "refused, with the cause"
UNCLEAR, SAID, SILENT = "refused, without the cause", "read wrongly, with a note", "**read wrongly, in silence**"
RIGHT = (READ, REFUSED)
_LONGEST = 150


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tree", type=Path, help="a checkout of another revision: its verdicts become those of before")
    parser.add_argument("--as-json", action="store_true", help="print the verdicts of the installed package alone")
    parser.add_argument("--only", help="cases whose name contains this, with all that is said")
    given = parser.parse_args()
    if given.only:
        for name, (verdict, said) in verdicts(given.only).items():
            print(f"{name}: {verdict}\n    {said}\n")
    elif given.as_json:
        print(json.dumps({name: verdict for name, (verdict, _) in verdicts().items()}, indent=1))
    elif given.tree:
        environment = {**os.environ, "PYTHONPATH": str(given.tree / "platform")}
        done = subprocess.run([sys.executable, __file__, "--as-json"], env=environment, check=True, stdout=subprocess.PIPE, text=True)
        BEFORE.write_text(done.stdout)
    else:
        from benchmarks.training_cases import write_page

        write_page("real_files", "Files of people and exporters", list(page(verdicts(), json.loads(BEFORE.read_text()))))


def verdicts(only: str = "") -> dict[str, tuple[str, str]]:
    """The verdict and the words for each case."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in (case for cases in GROUPS.values() for case in cases if only in case.kind):
            found[case.kind] = verdict_of(case, Path(folder))
            if only:
                print(read(Path(folder) / case.name, case)[0])
    return found


def verdict_of(case: Case, folder: Path) -> tuple[str, str]:
    """The verdict and the words for a case, whose file is written into `folder`."""
    path = folder / case.name
    path.write_bytes(case.content)
    shown, said = read(path, case)
    said = said.replace(f"{folder}/", "")
    named = all(word in said for word in case.says)
    if case.reads is not None and shown == case.reads:
        verdict = READ if named else SILENT
    elif shown:
        verdict = SAID if said and named and case.says else SILENT
    else:
        verdict = REFUSED if case.reads is None and named else UNCLEAR
    return verdict, said if verdict != READ or case.says else ""


def read(path: Path, case: Case) -> tuple[str, str]:
    """The first sample, empty where there is none, and all that is said."""
    from tuneyard.api import BadInput

    try:
        return _scored(path, case.prompt) if case.prompt else _inspected(path, dict(case.how))
    except BadInput as error:
        return "", str(error)
    except Exception as error:  # noqa: BLE001 -- a crash is a finding
        return "", f"{type(error).__name__}: {error}"


def _scored(path: Path, prompt: str) -> tuple[str, str]:
    from tuneyard.api import ScoreData
    from tuneyard.data.score_rows import ScoreRows

    row = ScoreRows.open(ScoreData(source=str(path), prompt=prompt), cache_dir=path.parent / "cache").row(0)
    asked = row["prompt"] if isinstance(row["prompt"], str) else "\n".join(f"{m['role']}: {m['content']}" for m in row["prompt"])
    return asked, row["error"] or ""


def _inspected(path: Path, how: dict[str, Any]) -> tuple[str, str]:
    from tuneyard.api import BadInput
    from tuneyard.data import inspect

    try:
        found = inspect(str(path), **how)
    except TypeError as error:
        return "", str(error)
    if found.format == "unknown":
        raise BadInput(found.why, found.advice)
    said = "; ".join(part for part in (*found.bad_examples[:1], found.advice, *found.notes) if part)
    return "".join(f"«{piece.text}»" if piece.loss else piece.text for piece in found.shown[0]) if found.shown else "", said


def page(now: dict[str, tuple[str, str]], before: dict[str, str]) -> Iterator[str]:
    yield (
        "Each file has a few rows, in the format that the exporter writes. A file counts as read if the first sample, with the text that "
        "carries loss, is the right one. It counts as refused with the cause if the message names what is wrong in this file. *Before* is "
        "the revision before [design 028](../design/028-what-a-row-means.md)."
    )
    yield ""
    yield (
        "The forms were built on the first five groups, so their figures say what is held by tests, not what is to be expected of other "
        "files. The last group was written afterwards. When it was first read, 28 of its 30 files were right, and none was read wrongly in "
        "silence; FLAN and xP3 were refused without the cause, and have an entry since."
    )
    yield from ("", "| | files | before | now |", "|---|---|---|---|")
    for group, cases in GROUPS.items():
        names = [case.kind for case in cases]
        yield f"| {group} | {len(names)} | {sum(before.get(n) in RIGHT for n in names)} | {sum(now[n][0] in RIGHT for n in names)} |"
    counts = Counter(before.values()), Counter(verdict for verdict, _ in now.values())
    for verdict in (READ, REFUSED, UNCLEAR, SAID, SILENT):
        yield f"| {verdict} | | {counts[0][verdict]} | {counts[1][verdict]} |"
    for group, cases in GROUPS.items():
        yield from ("", f"## {group}", "", "| file | before | now | what is said now |", "|---|---|---|---|")
        for case in cases:
            verdict, said = now[case.kind]
            words = " ".join(said.split()).replace("|", "\\|").replace("<", "&lt;")
            short = words if len(words) <= _LONGEST else f"{words[:_LONGEST]}…"
            yield f"| {case.kind} | {before.get(case.kind, '')} | {verdict} | {short} |"


if __name__ == "__main__":
    main()
