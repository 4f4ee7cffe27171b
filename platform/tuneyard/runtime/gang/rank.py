"""One rank of a train task: a process of its own, without Ray, that an agent has started (see `rank_agent`).

It talks to the agent on a channel. It receives a RankOrder first, and later perhaps `stop`; it sends events, and at last a result or an
error. When the channel closes, the agent is gone, and the rank kills itself.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tuneyard.api import TuneyardError
from tuneyard.runtime.gang.process_log import output_to
from tuneyard.runtime.gang.rank_lines import RankLines
from tuneyard.runtime.nodes.pod import this_pod
from tuneyard.runtime.sessions.stacks import train_stack
from tuneyard.tracking import Emit, Event, Preflighted, Stage, silent
from tuneyard.training.quick_imports import quick_imports
from tuneyard.training.request import NetworkChecks, TrainRequest


@dataclass(frozen=True)
class RankOrder:
    """The order of one rank. `number`: the start within the gang, so that ranks of different starts never join one process group."""

    number: int
    request: TrainRequest
    log: str


def main() -> None:
    """Run one rank. The last argument is the descriptor of the channel; torchrun's variables are set."""
    os.set_inheritable(int(sys.argv[-1]), False)
    channel = Connection(int(sys.argv[-1]))
    order: RankOrder = channel.recv()
    stop = threading.Event()
    threading.Thread(target=_listen, args=(channel, stop), name="tuneyard-channel", daemon=True).start()
    sending = threading.Lock()

    def tell(kind: str, value: object) -> None:
        with sending:
            channel.send((kind, value))

    with output_to(Path(order.log), attempt=order.request.attempt):
        try:
            tell("result", _run(order, tell, stop))
        except BaseException as error:  # noqa: BLE001 - every error is reported
            traceback.print_exc()
            tell("error", error) if isinstance(error, TuneyardError) else tell("raised", f"{type(error).__name__}: {error}")
    # Exit without the interpreter's clean-up, which would take apart a gigabyte of modules.
    os._exit(0)


def _listen(channel: Connection, stop: threading.Event) -> None:
    try:
        while True:
            channel.recv()
            stop.set()
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGKILL)


def _run(order: RankOrder, tell: Any, stop: threading.Event) -> Any:
    request, rank = order.request, int(os.environ["RANK"])
    lines = RankLines()

    def emit(event: Event) -> None:
        tell("event", event)
        for line in lines.of(event):
            print(line, flush=True)

    print(f"rank {rank} of {request.plan.workers} on {this_pod()}, attempt {request.attempt}", flush=True)
    with quick_imports(train_stack([request.task]).absent):
        from tuneyard.training import train
    _join_group(order)
    if request.network is not None:
        _try_network(request, request.network, emit, rank)
    result = train(request, emit=emit, should_stop=stop.is_set)
    print(
        f"{result.status} after {result.steps} steps, peak memory {result.peak_memory_gb[rank]:.2f} GB of"
        f" {result.planned_memory_gb:.2f} planned",
        flush=True,
    )
    return result


def _join_group(order: RankOrder) -> None:
    """Join the process group of this start, by the store of agent 0, which serves all starts of the gang (as torchelastic's agents do)."""
    import torch
    import torch.distributed as dist

    from tuneyard.training.distributed import COLLECTIVE_TIMEOUT, use_growing_segments

    on_gpu = order.request.plan.sku != "cpu"
    if on_gpu:
        use_growing_segments()
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % max(1, torch.cuda.device_count()))
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=COLLECTIVE_TIMEOUT)
    dist.init_process_group(
        backend="nccl" if on_gpu else "gloo",
        store=dist.PrefixStore(f"tuneyard/{order.number}", store),
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=COLLECTIVE_TIMEOUT,
    )


def _try_network(request: TrainRequest, checks: NetworkChecks, emit: Emit, rank: int) -> None:
    from tuneyard.runtime.gang.all_reduce import try_all_reduce

    say = emit if rank == 0 else silent
    say(Stage(task=request.name, name="preflight: all-reduce"))
    measured = try_all_reduce(on_gpu=request.plan.sku != "cpu", promised_gb_per_s=checks.promised_gb_per_s)
    if rank != 0 and measured.gb_per_s is not None:
        print(f"all-reduce between the ranks: {measured.gb_per_s:.2f} GB/s", flush=True)
    say(Preflighted(task=request.name, seconds=checks.before_s + measured.seconds, all_reduce_gb_per_s=measured.gb_per_s))
