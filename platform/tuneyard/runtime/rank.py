"""One rank of a train task: what runs inside a worker of Ray's TorchTrainer."""

from __future__ import annotations

import faulthandler
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tuneyard.runtime.mailbox import this_process
from tuneyard.runtime.pod import this_pod
from tuneyard.runtime.rank_lines import RankLines
from tuneyard.tracking import Emit, Event, Preflighted, Stage, silent
from tuneyard.training.request import NetworkChecks, TrainRequest


def train_rank(config: Mapping[str, Any]) -> Any:
    """Train, and tell the mailbox about it. TorchTrainer has set torchrun's environment and made the process group.

    `config`: `request` (TrainRequest), `mailbox` (handle), `logs` (folder of this machine). Before the model is loaded the network
    between the ranks is tried, where the request asks for it. Returns the TrainResult; Ray hands rank 0's to the job.
    """
    import ray

    rank = int(os.environ["RANK"])
    log = Path(config["logs"]) / f"{config['request'].name}-rank-{rank}.log"
    mailbox = config["mailbox"]

    lines = RankLines()

    def emit(event: Event) -> None:
        mailbox.post.remote(event)
        for line in lines.of(event):
            print(line, flush=True)

    def stop_asked() -> bool:
        return bool(ray.get(mailbox.stop_asked.remote()))

    with output_to(log, attempt=config["request"].attempt):
        ray.get(mailbox.hello.remote(this_process(rank, str(log))))
        print(f"rank {rank} of {config['request'].plan.workers} on {this_pod()}, attempt {config['request'].attempt}", flush=True)
        try:
            if (network := config["request"].network) is not None:
                _try_network(config["request"], network, emit, rank)
            from tuneyard.training import train

            result = train(config["request"], emit=emit, should_stop=stop_asked)
        except BaseException as error:
            traceback.print_exc()
            ray.get(mailbox.goodbye.remote(rank, f"{type(error).__name__}: {error}"))
            raise
        print(
            f"{result.status} after {result.steps} steps, peak memory {result.peak_memory_gb[rank]:.2f} GB of"
            f" {result.planned_memory_gb:.2f} planned",
            flush=True,
        )
        ray.get(mailbox.goodbye.remote(rank, ""))
        return result


def _try_network(request: TrainRequest, checks: NetworkChecks, emit: Emit, rank: int) -> None:
    from tuneyard.runtime.all_reduce import try_all_reduce

    say = emit if rank == 0 else silent
    say(Stage(task=request.name, name="preflight: all-reduce"))
    measured = try_all_reduce(on_gpu=request.plan.sku != "cpu", promised_gb_per_s=checks.promised_gb_per_s)
    if rank != 0 and measured.gb_per_s is not None:
        print(f"all-reduce between the ranks: {measured.gb_per_s:.2f} GB/s", flush=True)
    say(Preflighted(task=request.name, seconds=checks.before_s + measured.seconds, all_reduce_gb_per_s=measured.gb_per_s))


@contextmanager
def output_to(log: Path, *, attempt: int) -> Iterator[None]:
    """Send what this process prints, from Python or below, and where it crashes, to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", buffering=1) as file:
        file.write(f"--- attempt {attempt}, process {os.getpid()}\n")
        kept_streams = sys.stdout, sys.stderr
        kept_descriptors = os.dup(1), os.dup(2)
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        sys.stdout = sys.stderr = file
        faulthandler.enable(file)
        # torch and transformers announce what they will change some day at every call: it would bury what matters in the log.
        warnings.simplefilter("ignore", FutureWarning)
        try:
            yield
        finally:
            faulthandler.disable()
            sys.stdout, sys.stderr = kept_streams
            for kept, descriptor in zip(kept_descriptors, (1, 2), strict=True):
                os.dup2(kept, descriptor)
                os.close(kept)
