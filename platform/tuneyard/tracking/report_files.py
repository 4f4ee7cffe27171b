"""The files of a report: report.json for programs, report.html for people. Both can be written at any time during the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tuneyard.tracking.report import Report

REPORT_JSON = "report.json"
REPORT_HTML = "report.html"


class Writable(Protocol):
    """The target of a report, such as a tuneyard.storage.Store. `put` replaces a file atomically."""

    def put(self, path: str, data: bytes) -> None: ...


def write_report(target: Writable | Path, report: Report) -> None:
    """Write report.json and report.html, each atomically, into a store or a local folder."""
    from tuneyard.tracking.report_page import render

    put = _put_local(target) if isinstance(target, Path) else target.put
    put(REPORT_HTML, render(report).encode())
    put(REPORT_JSON, report.to_json().encode())


def _put_local(folder: Path) -> Callable[[str, bytes], None]:
    def put(path: str, data: bytes) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        staged = folder / f".{path}.new"
        staged.write_bytes(data)
        staged.replace(folder / path)

    return put
