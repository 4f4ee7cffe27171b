"""The stacks of ranks and of engines can be forked: they load neither Ray nor gRPC, and start no threads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tuneyard.runtime.sessions.stacks import Stack, engine_stack, train_stack
from tuneyard.warm import WarmServer, start


@pytest.mark.long
@pytest.mark.parametrize("stack", [train_stack([]), engine_stack()], ids=["ranks", "engines"])
def test_a_stack_can_be_forked(stack: Stack, tmp_path: Path) -> None:
    """In `make test`: the quickstart, whose ranks and engines must all be forks of its own servers."""
    log = tmp_path / "server.log"
    server = WarmServer(stack.modules, absent=stack.absent, settings=dict(stack.settings), environment=os.environ, log=log)
    try:
        process, why_cold = start(server.socket, "os:getpid")
        assert not why_cold, log.read_text()
        assert process.wait(60) == 0
    finally:
        server.close()
