"""Redirects the output of a process, and the traceback of a crash, to a log of its own."""

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
    """Send the output of this process, from Python or native code, and the traceback of a crash, to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", buffering=1) as file:
        file.write(f"--- attempt {attempt}, process {os.getpid()}\n")
        kept_streams = sys.stdout, sys.stderr
        kept_descriptors = os.dup(1), os.dup(2)
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        sys.stdout = sys.stderr = file
        faulthandler.enable(file)
        # torch and transformers announce future changes at every call, which would bury the rest of the log.
        warnings.simplefilter("ignore", FutureWarning)
        try:
            yield
        finally:
            faulthandler.disable()
            sys.stdout, sys.stderr = kept_streams
            for kept, descriptor in zip(kept_descriptors, (1, 2), strict=True):
                os.dup2(kept, descriptor)
                os.close(kept)
