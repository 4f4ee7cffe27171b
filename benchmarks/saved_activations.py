"""What layers keep for backward on each rank, against the plan, with and without sequence parallelism.

`python benchmarks/saved_activations.py`: ranks on gloo; writes docs/benchmarks/saved_activations.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.training_cases import write_page
from tests.ranks.saved_activations import saved_bytes

from tuneyard.catalog import gpu, shape_from_config
from tuneyard.planning import Layout, Setup
from tuneyard.planning.activations import layer_bytes

SHAPE = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 4,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "vocab_size": 384,
}
TOKENS = 512
CASES = ((1, False), (2, False), (2, True), (4, False), (4, True))


def main() -> None:
    shape = shape_from_config({"model_type": "llama", **SHAPE})
    lines = [
        f"A Llama shape of {shape.layers} layers and a hidden size of {shape.hidden}, one row of {TOKENS} tokens, fp32, sdpa, without "
        "recomputation. Measured: storages that autograd saves between the token ids and the last hidden states, weights left out, on the "
        "fullest rank. Planned: `planning.activations.layer_bytes` of all layers. What surrounds the layers (the last norm) is in the "
        "measured figure alone.",
        "",
        "| tensor-parallel ranks | sequence parallel | measured, MB | planned, MB | |",
        "|---:|---|---:|---:|---:|",
    ]
    for degree, sequence in CASES:
        measured = saved_bytes(SHAPE, TOKENS, degree, sequence=sequence)
        layout = Layout(
            workers=degree,
            zero=0,
            precision="fp32",
            attention="sdpa",
            micro_batch=1,
            seq_len=TOKENS,
            tensor_parallel=degree,
            sequence_parallel=sequence,
        )
        planned = shape.layers * layer_bytes(Setup(shape=shape, gpu=gpu("cpu"), layout=layout))
        said = "yes" if sequence else "no"
        lines.append(f"| {degree} | {said} | {measured / 1e6:.1f} | {planned / 1e6:.1f} | {planned / measured - 1:+.1%} |")
        print(lines[-1], flush=True)
    write_page("saved_activations", "Activations kept for backward, against the plan", lines)


if __name__ == "__main__":
    main()
