"""Memory of each rank while a saved model is loaded in shards, beside loading it whole.

Writes docs/benchmarks/tensor_parallel_loading.md.

python benchmarks/tensor_parallel_loading.py
"""

from __future__ import annotations

import datetime
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.applied_models import Case
from tests.forks import Call, called
from tests.ranks import group

PAGE = Path(__file__).parents[1] / "docs/benchmarks/tensor_parallel_loading.md"
DEGREE = 4
_WIDTH = {"hidden_size": 768, "num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 16000}
MODELS = {
    "llama": _WIDTH | {"num_hidden_layers": 10, "intermediate_size": 2048},
    "mixtral": _WIDTH | {"num_hidden_layers": 4, "intermediate_size": 1024, "num_local_experts": 4},
}


def main() -> None:
    rows = []
    for name, changes in MODELS.items():
        with tempfile.TemporaryDirectory() as folder:
            case = Case(name, changes)
            called([Call(_saved, (case, folder))])
            alone = called([Call(_whole, (case, folder))])[0]
            ranks = called([Call(_in_shards, (case, folder), place) for place in group(DEGREE, per_machine=DEGREE)])
        weights, largest = alone["weights"], alone["largest"]
        peak = max(rank["peak"] for rank in ranks)
        held = max(rank["held"] for rank in ranks)
        rows.append(
            f"| {name} | {weights} | {largest} | {held} | {peak} | {alone['peak']} | {max(r['s'] for r in ranks):.1f} | {alone['s']:.1f} |"
        )
        print(rows[-1], flush=True)
    PAGE.write_text(page(rows))


def _saved(case: Case, folder: str) -> None:
    case.model().save_pretrained(folder)


def _whole(case: Case, folder: str) -> dict[str, Any]:
    kind = type(case.model(meta=True))
    before, start = _reset_peak(), time.monotonic()
    model = kind.from_pretrained(folder)
    sizes = [weight.nbytes for weight in model.parameters()]
    megabytes = {"weights": round(sum(sizes) / 1e6), "largest": round(max(sizes) / 1e6), "peak": _peak() - before}
    return megabytes | {"s": time.monotonic() - start}


def _in_shards(case: Case, folder: str) -> dict[str, Any]:
    import torch
    import torch.distributed as dist
    from tests.applied_models import plan_here

    from tuneyard.parallel import load_sharded, shard_model

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    plan = plan_here(case, DEGREE)
    model = case.model(meta=True)
    before, start = _reset_peak(), time.monotonic()
    shards = shard_model(model, plan, dist.group.WORLD)
    load_sharded(model, shards, folder)
    held = round(sum(weight.nbytes for weight in model.parameters()) / 1e6)
    found = {"peak": _peak() - before, "held": held, "s": time.monotonic() - start}
    dist.barrier()
    dist.destroy_process_group()
    return found


def _reset_peak() -> int:
    """Megabytes of this process's own memory now; its peak is counted from here on."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _peak() -> int:
    return _status("VmHWM")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return round(next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024 / 1e6)


def page(rows: list[str]) -> str:
    """The page."""
    return "\n".join(
        [
            "# Loading a saved model in shards: memory of each rank",
            "",
            f"`python benchmarks/tensor_parallel_loading.py`, {datetime.date.today()}, {os.cpu_count()} cores, no GPU, float32, "
            f"{DEGREE} ranks on gloo.",
            "",
            "Megabytes. *held*: a rank's shards once all is loaded. *peak*: growth of the largest rank's resident memory while it loads.",
            "Mixtral's files hold one weight for each expert, and the model one for all: this one is made whole, and then cut.",
            "",
            "| model | weights | largest weight | held by a rank | peak of a rank | peak of `from_pretrained` | seconds | seconds whole |",
            "|---|---:|---:|---:|---:|---:|---:|---:|",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    main()
