"""Memory of each rank while a saved model is loaded in shards, beside loading it whole.

Writes docs/benchmarks/tensor_parallel_loading.md.

python benchmarks/tensor_parallel_loading.py
"""

from __future__ import annotations

import datetime
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.ranks.applied_models import Case
from tests.ranks.forks import Call, called
from tests.ranks.sharded_loading import in_ranks, measured_in_shards, measured_whole, saved

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
            called([Call(saved, (case, folder))])
            alone = called([Call(measured_whole, (case, folder))])[0]
            ranks = in_ranks(measured_in_shards, DEGREE, case, folder, DEGREE)
        weights, largest = alone["weights"], alone["largest"]
        peak = max(rank["peak"] for rank in ranks)
        held = max(rank["held"] for rank in ranks)
        rows.append(
            f"| {name} | {weights} | {largest} | {held} | {peak} | {alone['peak']} | {max(r['s'] for r in ranks):.1f} | {alone['s']:.1f} |"
        )
        print(rows[-1], flush=True)
    PAGE.write_text(page(rows))


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
            "Mixtral's files hold one weight for each expert, and the model one for all of a layer: this one is made whole, which takes",
            "about three times its size for a moment, and then cut. `from_pretrained` maps the file; its weights are read once here, as",
            "training does.",
            "",
            "| model | weights | largest weight | held by a rank | peak of a rank | peak of `from_pretrained` | seconds | seconds whole |",
            "|---|---:|---:|---:|---:|---:|---:|---:|",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    main()
