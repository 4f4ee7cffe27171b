"""Whose error it is: a program's own, or that of a rank that lost a peer in the middle of a forward pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuneyard.api import BadInput
from tuneyard.training.program.blame import blamed


@pytest.mark.parametrize(
    "message",
    [
        "[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:53208",
        "[gloo] Read error [127.0.0.1]: Connection reset by peer",
        "failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?",
    ],
)
def test_a_lost_peer_passes_as_it_is(message: str) -> None:
    with pytest.raises(RuntimeError, match="onnection"), blamed("loss of the ranker", Path()):
        raise RuntimeError(message)


def test_any_other_error_is_the_programs() -> None:
    with pytest.raises(BadInput, match="loss of the ranker failed: KeyError"), blamed("loss of the ranker", Path()):
        raise KeyError("x")
