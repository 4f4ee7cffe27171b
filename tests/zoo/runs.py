"""Each architecture in a fork of its own: one that crashes or hangs leaves the others alone, and torch is imported once."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from tests.ranks.forks import Call, called

LIMIT_S = 240


def examined(model_type: str) -> dict[str, Any]:
    """Findings about one architecture, made in a fork. Ends with `full` failed where the fork is killed or takes too long."""
    began = time.monotonic()
    try:
        found: dict[str, Any] = called([Call(_in_fork, (model_type,))], timeout_s=LIMIT_S)[0]
    except RuntimeError as error:
        words = f"the process ended after {time.monotonic() - began:.0f} s: {str(error)[-400:]}"
        return {"model_type": model_type, "full": {"status": "fails", "words": words}}
    return found


def _in_fork(model_type: str) -> dict[str, Any]:
    from tests.zoo.checks import findings_of

    with tempfile.TemporaryDirectory() as folder:
        return findings_of(model_type, Path(folder)).to_dict()
