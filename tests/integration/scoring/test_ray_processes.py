"""An embedded Ray starts only the processes that one job on one machine needs."""

from __future__ import annotations

from contextlib import suppress

import psutil
import pytest


@pytest.mark.usefixtures("ray_here")
def test_a_script_stands_in_for_the_agent_of_the_dashboard() -> None:
    names, commands = [], []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # Ray starts and ends processes all the time
            names.append(process.name())
            commands.append(" ".join(process.cmdline()))
    assert "raylet" in names
    assert not [name for name in names if name.startswith("ray::Dashboard")]
    assert [command for command in commands if "agent_stand_in.py" in command]
