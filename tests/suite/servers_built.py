"""`python -m tests.suite.servers_built`: has Go, Maven and Debian bring what tests start, before tests ask for it.

One after the other: two builds at once would compile twice what they share. What cannot be had here is said, and its tests are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.servers import installed
from tests.servers.gpu_packages import gpu_packages
from tests.testcluster import Member, Unavailable
from tests.testcluster.binaries import binary, cni_folder, debian, kuberay_crds
from tests.testcluster.progress import say, stage

SERVERS: dict[str, Callable[[], object]] = {
    # First: the unit tests ask for it within a minute, and would build it beside the next one.
    "helm": lambda: binary("helm"),
    "versitygw": installed.versitygw,
    "postgresql": installed.postgres_folder,
    "chromium": installed.chromium,
    "hadoop": installed.hadoop_jars,
    "cni plugins": cni_folder,
    "runc": lambda: debian("runc", "runc"),
    "gpu packages": gpu_packages,
}


def main() -> None:
    wanted = dict(SERVERS)
    for program in [*Member("any", Path("any")).programs(), "promtool", "prometheus"]:
        wanted[program] = lambda program=program: binary(program)
    for name, bring in {**wanted, "kuberay crds": kuberay_crds}.items():
        try:
            with stage(name):
                bring()
        except (Unavailable, pytest.skip.Exception) as reason:
            say(f"  tests that need {name} will be skipped: {reason}")


if __name__ == "__main__":
    main()
