"""What a process prints, and where it crashes, in a log of its own."""

from __future__ import annotations

import faulthandler
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def output_to(log: Path, *, attempt: int) -> Iterator[None]:
    """Send what this process prints, from Python or below, and where it crashes, to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", buffering=1) as file:
        file.write(f"--- attempt {attempt}, process {os.getpid()}\n")
        kept_streams = sys.stdout, sys.stderr
        kept_descriptors = os.dup(1), os.dup(2)
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        sys.stdout = sys.stderr = file
        faulthandler.enable(file)
        # torch and transformers announce what they will change some day at every call: it would bury what matters in the log.
        warnings.simplefilter("ignore", FutureWarning)
        try:
            yield
        finally:
            faulthandler.disable()
            sys.stdout, sys.stderr = kept_streams
            for kept, descriptor in zip(kept_descriptors, (1, 2), strict=True):
                os.dup2(kept, descriptor)
                os.close(kept)
