"""The file of results. Each result is appended as a line of JSON at once, so an ended check keeps what it found."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

OUT = Path(os.environ.get("OUT", "build/gpu-check"))
WORK = Path(os.environ.get("WORK", tempfile.gettempdir())) / "tuneyard-gpu-check"
"""Models, offloaded states and caches."""
MODELS = WORK / "models"
RESULTS = OUT / "results.jsonl"


def tell(section: str, **values: Any) -> None:
    line = json.dumps({"section": section, "at": round(time.time(), 1), **values})
    with RESULTS.open("a") as file:
        file.write(line + "\n")
    print(line, flush=True)


def told() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def first_line(error: BaseException) -> str:
    """The error with its type, in one line of at most 400 characters."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:400]
