"""Samples/s of one core beside TorchRec's own DLRM, on the same log of clicks.

python benchmarks/ranker_torchrec.py [--rounds 5] [--steps 60]

Two comparisons. `tables`: the same DLRM (TorchRec's own dense modules, and the same optimizer for them) on TorchRec's tables (FBGEMM's
fused lookup and row-wise Adagrad, DistributedModelParallel, its planner) and on ours. `product`: TorchRec's DLRM in its own loop, and a
`rank` task with one layer of AdvancedDLRM and about as many dense parameters, with everything that a task does. Each runs in a process
on one core, in turns; ratios are of rounds, and the median counts. Writes docs/benchmarks/ranker_torchrec.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from peer_packages import add_packages
from training_cases import write_page

PACKAGES = (
    "torchrec==1.8.0",
    "fbgemm-gpu-cpu==1.8.0",
    "iopath==0.1.10",
    "portalocker",
    "pyre-extensions",
    "typing-inspect",
    "mypy-extensions",
    "tensordict",
    "torchmetrics",
    "lightning-utilities",
    "orjson",
    "pyvers",
    "cloudpickle",
    "importlib-metadata",
    "zipp",
)
DENSE, SPARSE, TABLE_ROWS, WIDTH, BATCH, LOG_ROWS = 13, 26, 100_000, 16, 2048, 100_000
"""The shape of Criteo's log: as many numbers and categories."""
BOTTOM, TOP = [128, 64, WIDTH], [256, 128, 1]
RATE, TABLE_RATE, WARM_UP = 1e-3, 0.05, 8


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--side", choices=SIDES)
    parser.add_argument("--log", type=Path)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(SIDES[options.side](options.log, options.steps)))
        return
    with tempfile.TemporaryDirectory() as folder:
        log = write_log(Path(folder) / "log.parquet")
        found: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
        for number in range(options.rounds):
            for side in SIDES:
                found[side].append(in_process(side, log, options.steps))
                print(f"round {number + 1} of {options.rounds}, {side}: {found[side][-1]}", file=sys.stderr, flush=True)
    write(found)


def write(found: Mapping[str, list[dict[str, Any]]]) -> None:
    def ratio(ours: str, theirs: str) -> str:
        each = [mine["samples_per_s"] / other["samples_per_s"] for mine, other in zip(found[ours], found[theirs], strict=True)]
        return f"{statistics.median(each):.2f} ({min(each):.2f} to {max(each):.2f})"

    rows = ["| side | samples/s on one core (median) | dense parameters | first loss | last loss |", "|---|---|---|---|---|"]
    for side, runs in found.items():
        rate = statistics.median(run["samples_per_s"] for run in runs)
        rows.append(f"| {side} | {rate:,.0f} | {runs[0]['parameters']:,} | {runs[0]['first']:.4f} | {runs[0]['last']:.4f} |")
    text = (
        f"TorchRec 1.8.0 with fbgemm-gpu-cpu 1.8.0, each side in a process on one core. {DENSE} numbers, {SPARSE} categories, tables of "
        f"{TABLE_ROWS:,} rows and width {WIDTH}, batches of {BATCH}; ids by Zipf's law."
    )
    ratios = [
        f"Ours over theirs, the same DLRM on other tables: **{ratio('tables: ours', 'tables: TorchRec')}**.",
        f"A `rank` task, one layer of AdvancedDLRM, over TorchRec's loop: **{ratio('product: rank task', 'tables: TorchRec')}**; "
        "over the same with the task's settings of glibc (`keep_freed_memory`): "
        f"{ratio('product: rank task', 'tables: TorchRec, freed memory kept')}.",
        f"Load of the machine at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, with other work on them.",
    ]
    write_page("ranker_torchrec", "Rankers beside TorchRec's DLRM", [text, "", *ratios, "", *rows])


def in_process(side: str, log: Path, steps: int) -> dict[str, Any]:
    """One side in a process of its own, on the last core."""
    core = str((os.cpu_count() or 1) - 1)
    command = ["taskset", "-c", core, sys.executable, __file__, "--side", side, "--log", str(log), "--steps", str(steps)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    said = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if said.returncode:
        raise SystemExit(said.stderr[-3000:])
    answer: dict[str, Any] = json.loads(said.stdout.splitlines()[-1])
    return answer


def write_log(path: Path) -> Path:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(1)
    shares = 1 / np.arange(1, TABLE_ROWS + 1) ** 1.05
    shares /= shares.sum()
    columns = {f"n{at}": np.exp(random.normal(size=LOG_ROWS)).astype(np.float32) for at in range(DENSE)}
    columns |= {f"c{at}": random.permutation(TABLE_ROWS)[random.choice(TABLE_ROWS, LOG_ROWS, p=shares)] for at in range(SPARSE)}
    columns["label"] = (random.random(LOG_ROWS) < 0.25).astype(np.int8)
    pq.write_table(pa.table(columns), path)
    return path


def config_of(**fields: Any) -> Any:
    from tuneyard.ranking import RankerConfig, SparseFeature

    sparse = tuple(SparseFeature(f"c{at}", TABLE_ROWS) for at in range(SPARSE))
    return RankerConfig(
        **{"dense": tuple(f"n{at}" for at in range(DENSE)), "sparse": sparse, "layers": (), "width": WIDTH, "tasks": ("label",), **fields}
    )


def batches(log: Path, steps: int) -> Iterator[dict[str, Any]]:
    """Batches of the log in an order of its own, made as a rank task makes them."""
    import numpy as np

    from tuneyard.ranking import stored_rows

    rows, random = stored_rows(str(log), config_of()), np.random.default_rng(2)
    for _ in range(steps):
        yield rows.batch(random.integers(0, len(rows), BATCH))


def run(step: Callable[[dict[str, Any]], float], log: Path, steps: int, parameters: int) -> dict[str, Any]:
    losses, began = [], 0.0
    for number, batch in enumerate(batches(log, WARM_UP + steps)):
        if number == WARM_UP:
            began = time.perf_counter()
        losses.append(step(batch))
    return {
        "samples_per_s": BATCH * steps / (time.perf_counter() - began),
        "parameters": parameters,
        "first": losses[0],
        "last": losses[-1],
    }


def torchrec_side(log: Path, steps: int) -> dict[str, Any]:
    warnings.filterwarnings("ignore")
    add_packages("torchrec", PACKAGES)
    import torch

    joined()
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
    from torchrec.datasets.utils import Batch
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.model_parallel import DistributedModelParallel
    from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology
    from torchrec.models.dlrm import DLRM, DLRMTrain
    from torchrec.optim import RowWiseAdagrad
    from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

    keys = [f"c{at}" for at in range(SPARSE)]
    tables = [EmbeddingBagConfig(name=f"t{key}", embedding_dim=WIDTH, num_embeddings=TABLE_ROWS, feature_names=[key]) for key in keys]
    found = EmbeddingBagCollection(tables=tables, device=torch.device("meta"))
    dlrm = DLRM(found, DENSE, BOTTOM, TOP, dense_device=torch.device("cpu"))
    apply_optimizer_in_backward(RowWiseAdagrad, found.parameters(), {"lr": TABLE_RATE, "eps": 1e-8})
    model, sharders = DLRMTrain(dlrm), [EmbeddingBagCollectionSharder()]
    plan = EmbeddingShardingPlanner(topology=Topology(world_size=1, compute_device="cpu")).plan(model, sharders)
    parallel = DistributedModelParallel(model, device=torch.device("cpu"), plan=plan, sharders=sharders)
    dense = [value for name, value in parallel.named_parameters() if "embedding" not in name]
    optimizer = torch.optim.AdamW(dense, lr=RATE)
    lengths = torch.ones(SPARSE * BATCH, dtype=torch.int32)

    def step(batch: dict[str, Any]) -> float:
        ids = torch.cat([batch[f"{key}.ids"] for key in keys])
        jagged = KeyedJaggedTensor.from_lengths_sync(keys, ids, lengths)
        loss, _ = parallel(Batch(numbers(batch), jagged, batch["labels"][:, 0].int()))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return float(loss.detach())

    return run(step, log, steps, sum(value.numel() for value in dense))


def torchrec_kept_side(log: Path, steps: int) -> dict[str, Any]:
    """TorchRec with the allocator's settings of a rank task."""
    from tuneyard.training.rank.heap import keep_freed_memory

    keep_freed_memory()
    return torchrec_side(log, steps)


def tables_side(log: Path, steps: int) -> dict[str, Any]:
    """TorchRec's dense modules on our tables."""
    warnings.filterwarnings("ignore")
    add_packages("torchrec", PACKAGES)
    import torch
    from torchrec.models.dlrm import DenseArch, InteractionArch, OverArch

    from tuneyard.ranking import ShardedTables, placed, shapes_of

    joined()
    config = config_of()
    tables = ShardedTables(config, placed(shapes_of(config), 1), seed=1)
    bottom = DenseArch(DENSE, BOTTOM)
    interaction = InteractionArch(SPARSE)
    top = OverArch(WIDTH + SPARSE * (SPARSE + 1) // 2, TOP)
    dense = torch.nn.parallel.DistributedDataParallel(torch.nn.ModuleDict({"bottom": bottom, "top": top}))
    parameters = list(dense.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=RATE)
    loss_of = torch.nn.BCEWithLogitsLoss()

    def step(batch: dict[str, Any]) -> float:
        finish = tables.begin(batch)
        embedded = bottom(numbers(batch))
        crossed = interaction(embedded, torch.stack(finish(), dim=1))
        loss = loss_of(top(crossed).squeeze(1), batch["labels"][:, 0])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        tables.apply_gradients(TABLE_RATE)
        return float(loss.detach())

    return run(step, log, steps, sum(value.numel() for value in parameters))


def task_side(log: Path, steps: int) -> dict[str, Any]:
    """A rank task as it runs, in this process."""
    from tests.builders.rankers import rank_request, rank_task

    from tuneyard.planning import RankerShape
    from tuneyard.tracking.events import Event, Step
    from tuneyard.training import train

    features = {"dense": [f"n{at}" for at in range(DENSE)], "sparse": [{"name": f"c{at}", "rows": TABLE_ROWS} for at in range(SPARSE)]}
    fields = {
        "batch": {"global": BATCH},
        "steps": WARM_UP + steps,
        "checkpoint": {"everySteps": 100_000},
        "tables": {"learningRate": TABLE_RATE},
    }
    task = rank_task(log, features=features, label="label", model=MODEL, **fields)
    seen: list[Step] = []

    def keep(event: Event) -> None:
        if isinstance(event, Step):
            seen.append(event)

    with tempfile.TemporaryDirectory() as folder:
        result = train(rank_request(Path(folder), task), emit=keep)
    steps_alone = seen[WARM_UP:-1]  # the last one has the checkpoint, which the other sides do not write
    rate = BATCH * len(steps_alone) / sum(event.step_s for event in steps_alone)
    return {
        "samples_per_s": rate,
        "parameters": RankerShape.of(task).parameters,
        "first": result.losses[0],
        "last": result.losses[-1],
    }


MODEL = {"width": WIDTH, "outputs": 8, "layers": [["dlrm"]], "hidden": [256, 128]}


def numbers(batch: dict[str, Any]) -> Any:
    """As both DLRMs read numbers: by their logarithm."""
    return batch["dense"].log1p()


def joined() -> None:
    import torch

    place = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 29517}
    os.environ.update({name: str(value) for name, value in place.items()})
    torch.set_num_threads(1)
    torch.manual_seed(1)
    torch.distributed.init_process_group("gloo")


SIDES: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    "tables: TorchRec": torchrec_side,
    "tables: TorchRec, freed memory kept": torchrec_kept_side,
    "tables: ours": tables_side,
    "product: rank task": task_side,
}


if __name__ == "__main__":
    main()
