"""vLLM's workers, which also report the reason why they cannot load. vLLM creates one in each rank's process, by the name of its class."""

from __future__ import annotations

from typing import Any

from vllm.v1.worker.cpu_worker import CPUWorker
from vllm.v1.worker.gpu_worker import Worker

from tuneyard.scoring.ranks import announce_rank, report_failure


class _Reporting:
    def init_device(self) -> None:
        announce_rank()
        with report_failure():
            super().init_device()  # type: ignore[misc]

    def load_model(self, *arguments: Any, **options: Any) -> None:
        with report_failure():
            super().load_model(*arguments, **options)  # type: ignore[misc]


class CpuRank(_Reporting, CPUWorker):
    """A rank on CPU cores."""


class GpuRank(_Reporting, Worker):
    """A rank on a GPU."""
