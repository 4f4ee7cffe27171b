"""`python -m tuneyard.runtime.stack_server training|engines SOCKET [--gpu] [--quantised]`: the fork server of a worker pod."""

from __future__ import annotations

import os
import sys

from tuneyard.runtime.sessions.stacks import ENGINES, engine_stack, train_stack


def main() -> None:
    """Become the fork server of the stack that the arguments name.

    It runs in a worker pod, and ends with it. The job's `setup` has run before, and its environment is set.
    """
    name, socket, *options = sys.argv[1:]
    stack = engine_stack() if name == ENGINES else train_stack([], on_gpu="--gpu" in options, quantised="--quantised" in options)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    secret = [variable for variable in os.environ.get("TUNEYARD_SECRETS", "").split(",") if variable]
    for variable in secret:
        os.environ.pop(variable, None)
    pairs = [part for key, value in stack.settings for part in ("--set", f"{key}={value}")]
    command = [sys.executable, "-P", "-m", "tuneyard.warm.server", "--socket", socket]
    os.execv(
        sys.executable,
        [*command, "--modules", ",".join(stack.modules), "--absent", ",".join(stack.absent), "--secret", ",".join(secret), *pairs],
    )


if __name__ == "__main__":
    main()
