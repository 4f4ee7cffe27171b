"""`python -m tests.ranks.offload_compiled`: DeepSpeed's code for disks, compiled into the cache.

On a machine that lacks it this takes seven minutes of a core, and a multiple beside other work. Tests that need it wait for this process;
a rank that compiled would be ended by its test's time limit, and the next one would begin again.
"""

from __future__ import annotations

import os
import subprocess
import sys

COMMAND = [sys.executable, "-W", "ignore", "-m", "tests.ranks.offload_compiled"]
LIMIT_S = 1700


def started() -> subprocess.Popen[bytes]:
    """The compilation, beside the tests that go before."""
    return subprocess.Popen(COMMAND, env={**os.environ, "DS_ACCELERATOR": "cpu"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main() -> None:
    from deepspeed.ops.op_builder import AsyncIOBuilder, PinMemoryBuilder

    from tuneyard.training.compiled_ops import load_op

    for builder in (PinMemoryBuilder(), AsyncIOBuilder()):
        load_op(builder, lambda: None)


if __name__ == "__main__":
    main()
