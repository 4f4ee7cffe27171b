"""A real Jupyter kernel, and what a notebook would show of the cell that it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

_LIMIT_S = 300.0


@dataclass
class Cell:
    """What was shown below a cell: each output in all its states, oldest first, by plain text and HTML."""

    outputs: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    printed: str = ""
    error: str = ""
    done: bool = False

    @property
    def states(self) -> list[dict[str, str]]:
        """Of the one output that there is."""
        (states,) = self.outputs.values()
        return states

    @property
    def shown(self) -> str:
        """The text that is there now; empty before there is any."""
        return self.states[-1]["text/plain"] if self.outputs else ""


class Notebook:
    """Runs one cell at a time."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self._manager, self._client = manager, client

    def run(self, code: str) -> Cell:
        """Run a cell to its end."""
        cell = Cell()
        for _ in self.watch(code, cell):
            pass
        return cell

    def watch(self, code: str, cell: Cell) -> Iterator[Cell]:
        """Run a cell; the cell again whenever it shows more."""
        request = self._client.execute(code)
        while not cell.done:
            message = self._client.get_iopub_msg(timeout=_LIMIT_S)
            if message["parent_header"].get("msg_id") == request:
                _take(cell, message["msg_type"], message["content"])
                yield cell

    def interrupt(self) -> None:
        """The stop button."""
        self._manager.interrupt_kernel()


@contextmanager
def notebook(folder: Path, environment: dict[str, str]) -> Iterator[Notebook]:
    """A kernel of this Python, in a folder."""
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(folder), env=environment)
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=_LIMIT_S)
        yield Notebook(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def _take(cell: Cell, kind: str, content: dict[str, Any]) -> None:
    if kind in ("display_data", "update_display_data"):
        cell.outputs.setdefault(content["transient"]["display_id"], []).append(content["data"])
    elif kind == "stream":
        cell.printed += content["text"]
    elif kind == "error":
        cell.error = f"{content['ename']}: {content['evalue']}"
    elif kind == "status":
        cell.done = content["execution_state"] == "idle"
