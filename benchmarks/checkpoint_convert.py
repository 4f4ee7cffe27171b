"""Peak memory of `tuneyard checkpoints convert`: small files of weights against one file of everything.

`python benchmarks/checkpoint_convert.py [--layers 12]`: writes docs/benchmarks/checkpoint_convert.md. Each conversion runs in a process of
its own; this one stays small, because a child's peak begins with that of the process that starts it.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RANKS = 4
MIB = 1 << 20
ALL = "1Ti"


def make(folder: Path, layers: int, width: int) -> dict[str, float]:
    """A checkpoint as four ZeRO-3 ranks leave it: a quarter of each parameter each, fp32, with both moments of Adam. Sizes in MiB."""
    import hashlib

    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig

    from tuneyard.storage import MANIFEST, CommitLog, Holder, Manifest, ManifestFile, open_store
    from tuneyard.training.checkpoint.layout import LOG, MODEL, index_name, inside, name_of, whole
    from tuneyard.training.checkpoint.pieces import Group, Piece
    from tuneyard.training.checkpoint.writer import take_snapshot, write_rank

    shape = {"hidden_size": width, "intermediate_size": 3 * width, "num_attention_heads": 8, "vocab_size": 16 * width}
    model = AutoModelForCausalLM.from_config(LlamaConfig(**shape, num_hidden_layers=layers))
    store = open_store(str(folder))
    (folder / "staged").mkdir(parents=True)
    model.config.save_pretrained(folder / "staged")
    store.commit_folder(folder / "staged", MODEL, extra={"adapter": False, "own_code": False, "names": {}})
    name, files = name_of(1, 1), []
    for rank in range(RANKS):
        pieces = []
        for parameter, value in model.named_parameters():
            share = -(-value.numel() // RANKS)
            mine = value.detach().reshape(-1)[rank * share : (rank + 1) * share]
            tensors = {"weight": mine, "exp_avg": torch.zeros_like(mine), "exp_avg_sq": torch.zeros_like(mine)}
            pieces.append(Piece(parameter, tuple(value.shape), rank * share, tensors, whole(tuple(value.shape))))
        index = write_rank(store, folder, folder, name, rank, take_snapshot(iter([Group(pieces, {})]), {}))
        raw = index.to_json()
        files += [*index.files, ManifestFile(index_name(rank), len(raw), hashlib.sha256(raw).hexdigest())]
    manifest = Manifest(tuple(files), {"layout": {"workers": RANKS, "zero": 3}, "plan": {"precision": "bf16"}})
    store.put(inside(name, MANIFEST), manifest.to_json())
    fence = CommitLog(store, LOG).open(Holder.this_process(job="benchmark", attempt=1, run="").to_dict())
    fence.commit(1, name, hashlib.sha256(manifest.to_json()).hexdigest())
    fence.close()
    layer = sum(value.numel() for value in model.model.layers[0].parameters())
    return {
        "parameters": float(model.num_parameters()),
        "layer_mib": layer * 4 / MIB,
        "largest_mib": max(value.numel() for value in model.parameters()) * 4 / MIB,
        "checkpoint_mib": manifest.size_bytes / MIB,
    }


def convert(source: Path, target: Path, max_shard: str, dtype: str) -> dict[str, float]:
    """What the command does; its peak and its time."""
    from tuneyard.cli import main as command

    began = time.perf_counter()
    if command(["checkpoints", "convert", str(source), str(target), "--max-shard", max_shard, "--dtype", dtype]) != 0:
        raise SystemExit(1)
    files = list(target.glob("*.safetensors"))
    return {
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "seconds": time.perf_counter() - began,
        "files": len(files),
        "output_mib": sum(path.stat().st_size for path in files) / MIB,
    }


def in_child(*arguments: Any) -> dict[str, float]:
    done = subprocess.run([sys.executable, __file__, "--child", *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-3000:])
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--child", nargs="+")
    arguments = parser.parse_args()
    if arguments.child:
        kind, *rest = arguments.child
        print(
            json.dumps(
                make(Path(rest[0]), int(rest[1]), int(rest[2])) if kind == "make" else convert(Path(rest[0]), Path(rest[1]), *rest[2:])
            )
        )
        return
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        sizes = in_child("make", root / "model", arguments.layers, 512)
        in_child("make", root / "tiny", 1, 64)
        rows = []
        for dtype in ("bf16", "fp32"):
            for source, max_shard in (("tiny", ALL), ("model", "16Mi"), ("model", "64Mi"), ("model", ALL)):
                target = root / f"{source}-{max_shard}-{dtype}"
                rows.append((source, max_shard, dtype, in_child("convert", root / source, target, max_shard, dtype)))
    report(sizes, rows, arguments.layers)


def report(sizes: dict[str, float], rows: list[tuple[str, str, str, dict[str, float]]], layers: int) -> None:
    from training_cases import write_page

    lines = [
        f"A Llama of {sizes['parameters'] / 1e6:.0f} million parameters in {layers} layers, saved by {RANKS} ranks under ZeRO-3 with",
        f"Adam's moments ({sizes['checkpoint_mib']:.0f} MiB on disk). A layer has {sizes['layer_mib']:.0f} MiB in fp32, the largest "
        f"parameter {sizes['largest_mib']:.0f} MiB.",
        "Peak: largest resident memory of the process (getrusage), mapped files included. Above libraries: less that of converting a",
        "model of 64 wide and one layer.",
        "",
        "| `--dtype` | `--max-shard` | files | output, MiB | peak, MiB | above libraries, MiB | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    base: dict[str, float] = {}
    for source, max_shard, dtype, made in rows:
        if source == "tiny":
            base[dtype] = made["peak_mib"]
        label = "(tiny model)" if source == "tiny" else "all in one" if max_shard == ALL else max_shard
        lines.append(
            f"| {dtype} | {label} | {made['files']:.0f} | {made['output_mib']:.0f} | {made['peak_mib']:.0f} "
            f"| {made['peak_mib'] - base[dtype]:.0f} | {made['seconds']:.1f} |"
        )
    write_page("checkpoint_convert", "Memory of converting a checkpoint", lines)


if __name__ == "__main__":
    main()
