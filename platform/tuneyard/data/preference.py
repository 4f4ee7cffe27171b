"""Preference pairs, kept as texts or messages, because TRL's DPOTrainer tokenises them itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tuneyard.api import BadInput
from tuneyard.data.roles import Pair, canonical_json
from tuneyard.data.samples import Placed

_BATCH = 1024
_MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))


def write_pairs(
    folder: Path, samples: Iterator[Placed], held_out: Callable[[npt.NDArray[np.uint64]], npt.NDArray[np.bool_]], name: str = "train"
) -> tuple[int, int]:
    """Write pairs to `<name>.arrow`, and held-out pairs to `validation.arrow`. Returns both counts. `held_out`: hashes -> mask.

    Raises BadInput where texts and messages are mixed.
    """
    spool = folder / "pairs.tmp"
    hashes = _spool(spool, samples)
    aside = held_out(hashes)
    with pa.memory_map(str(spool)) as source:
        table = pa.ipc.open_stream(source).read_all()
        for file, items in ((f"{name}.arrow", np.flatnonzero(~aside)), ("validation.arrow", np.flatnonzero(aside))):
            if items.size:
                with pa.OSFile(str(folder / file), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
                    for start in range(0, items.size, _BATCH):
                        writer.write_table(table.take(pa.array(items[start : start + _BATCH])))
    spool.unlink()
    return int((~aside).sum()), int(aside.sum())


def _spool(path: Path, samples: Iterator[Placed]) -> npt.NDArray[np.uint64]:
    hashes: list[int] = []
    writer: Any = None
    schema: Any = None
    with pa.OSFile(str(path), "wb") as sink:
        while batch := list(islice(samples, _BATCH)):
            pairs = [(p.place, p.sample) for p in batch if isinstance(p.sample, Pair)]
            if writer is None:
                kind = pa.string() if isinstance(pairs[0][1].chosen, str) else _MESSAGES
                schema = pa.schema([("prompt", kind), ("chosen", kind), ("rejected", kind)])
                writer = pa.ipc.new_stream(sink, schema)
            for place, pair in pairs:
                if isinstance(pair.chosen, str) != (schema.field("chosen").type == pa.string()):
                    raise BadInput(f"{place}: texts and messages are mixed in one data set of preferences", "write all pairs the same way")
            rows = [{"prompt": pair.prompt, "chosen": pair.chosen, "rejected": pair.rejected} for _, pair in pairs]
            writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=schema))
            hashes.extend(int.from_bytes(blake2b(canonical_json(pair).encode(), digest_size=8).digest(), "little") for _, pair in pairs)
        if writer is not None:
            writer.close()
        else:
            pa.ipc.new_stream(sink, pa.schema([("prompt", pa.string())])).close()
    return np.asarray(hashes, dtype=np.uint64)
