"""`python -m tests.testcluster up|down|status`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest
from tests.testcluster.progress import say
from tests.testcluster.unavailable import Unavailable
from tests.testcluster.up import DEFAULT_FOLDER, down, status, up


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.testcluster", description="Real Kubernetes clusters on this machine.")
    parser.add_argument("verb", choices=["up", "down", "status"])
    parser.add_argument("--state", type=Path, default=DEFAULT_FOLDER, help="folder that holds the clusters (default: %(default)s)")
    parser.add_argument("--members", type=int, default=2, help="members with a real node (default: %(default)s)")
    parser.add_argument("--no-operator", action="store_true", help="leave Tuneyard's operator to you")
    parser.add_argument(
        "--with",
        dest="wanted",
        choices=["auto", "kind", "k3d", "source"],
        default="auto",
        help="what makes the clusters; auto: kind or k3d where a container engine answers, else programs of this machine, built if missing",
    )
    given = parser.parse_args()
    state = given.state.resolve()
    try:
        if given.verb == "up":
            print(f"KUBECONFIG={up(state, members=given.members, operator=not given.no_operator, wanted=given.wanted)}")
        elif given.verb == "down":
            down(state)
        else:
            for name, pid in status(state).items():
                print(f"{name:<40} {'down' if pid is None else pid}")
    except (Unavailable, pytest.skip.Exception) as reason:
        say(f"error: {reason}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
