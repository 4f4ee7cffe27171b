"""vLLM's workers, which also report the reason why they cannot load. vLLM creates one in each rank's process, by the name of its class."""

from __future__ import annotations

from typing import Any

from vllm.v1.worker.cpu_worker import CPUWorker
from vllm.v1.worker.gpu_worker import Worker

from tuneyard.scoring.ranks import telling


class _Telling:
    def init_device(self) -> None:
        with telling():
            super().init_device()  # type: ignore[misc]

    def load_model(self, *arguments: Any, **options: Any) -> None:
        with telling():
            super().load_model(*arguments, **options)  # type: ignore[misc]


class CpuRank(_Telling, CPUWorker):
    """A rank on CPU cores."""


class GpuRank(_Telling, Worker):
    """A rank on a GPU."""
