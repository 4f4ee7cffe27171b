"""One rank of replays: `python -m tuneyard.training.provenance.rank REQUESTS.json`, alone or under torchrun."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from tuneyard.api import TuneyardError
from tuneyard.training.provenance.certificate import request_from_dict
from tuneyard.training.quick_imports import quick_imports

with quick_imports():
    from tuneyard.training import train


def main(path: str) -> int:
    """Train each request of the file, from the checkpoint in its output to its last step."""
    try:
        for values in json.loads(Path(path).read_text()):
            own = {name: values.pop(name) for name in ("output", "scratch", "resume", "stop_at")}
            request = request_from_dict(values, output=own["output"], scratch=own["scratch"])
            train(replace(request, resume=own["resume"], stop_at=own["stop_at"]))
    except TuneyardError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
