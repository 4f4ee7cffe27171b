"""The ingestion service of a train task, after Meta's DPP (Zhao et al. 2022), on Ray: a master, data workers, a fetcher on each machine.

1. A fetcher reads which window the ranks of its machine read, and asks the master for the shards of the next windows.
2. The master leases splits to data workers in the order of the requests. It takes back leases of slow or dead workers, and scales the
   number of workers to the ranks' need.
3. A data worker builds the shard of a split. The fetcher stores it where the ranks read shards.

Any of them may be killed: a shard is a pure function of its split, so that a rebuilt shard is equal, and the ranks' checkpoints hold the
cursors. A rank that waits too long builds its shard itself.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from tuneyard.api import DataService
from tuneyard.runtime.ingest.fetcher import ANSWER_LIMIT_S, Fetcher
from tuneyard.runtime.ingest.master import Account, IngestMaster
from tuneyard.runtime.ingest.worker import ROWS, TABLES, TOKENIZERS, DataWorker
from tuneyard.runtime.sessions.stacks import DATA_RESOURCE

__all__ = ["ROWS", "TABLES", "TOKENIZERS", "Account", "Fetcher", "Ingestion"]


class Ingestion:
    """The master of a train task, from its first attempt to its last. `name`: the name by which agents find it."""

    def __init__(self, job: str, task: str, service: DataService, *, loads: str = TOKENIZERS) -> None:
        """Start the master; Ray must be initialised. It runs on this machine, because machines of data workers may vanish at any time.
        `loads`: module:object that data workers load for their first split."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self.name = f"tuneyard-data-{sha256(f'{job}/{task}'.encode()).hexdigest()[:12]}-{os.getpid()}"
        options = _placed(ray.cluster_resources())
        master = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1, scheduling_strategy=here)(IngestMaster)
        self.master = master.options(name=self.name, get_if_exists=True).remote(service, _WorkerMaker(options, loads))

    def report(self) -> Account | None:
        """Figures of the service; None if the master does not answer."""
        import ray

        try:
            account: Account = ray.get(self.master.report.remote(), timeout=ANSWER_LIMIT_S)
        except ray.exceptions.RayError:
            return None
        return account

    def finish(self) -> None:
        """Let data workers store the shards that they have built for other jobs, for a bounded time."""
        import ray

        with contextlib.suppress(ray.exceptions.RayError):
            ray.get(self.master.finish.remote(), timeout=2 * ANSWER_LIMIT_S)

    def close(self) -> None:
        """End the master, and its workers with it."""
        import ray

        with contextlib.suppress(Exception):
            ray.kill(self.master)


@dataclass(frozen=True)
class _WorkerMaker:
    """Makes data workers in the process of the master, so that they end with it."""

    options: Mapping[str, Any]
    loads: str

    def __call__(self) -> Any:
        import ray

        from tuneyard.data.cache import cache_root

        return ray.remote(**self.options)(DataWorker).remote(str(cache_root() / "shards"), self.loads)


def _placed(resources: Mapping[str, float]) -> dict[str, Any]:
    """Ray's options of a data worker: one worker on each node for data workers. In a cluster without such nodes, workers share the nodes of
    the ranks, and reserve no CPU there: otherwise a restarted gang could not be placed."""
    if resources.get(DATA_RESOURCE, 0) > 0:
        return {"num_cpus": 0, "resources": {DATA_RESOURCE: 1}}
    return {"num_cpus": 0, "scheduling_strategy": "SPREAD"}
