"""Rows of tokens in each reader's own format, and the readers, for read_path.py."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from reading_rounds import Way
from tests.builders.models import tokenizer_of
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from tuneyard.api import TrainData
from tuneyard.data import Prepared, prepare
from tuneyard.data.mapped_rows import by_batches
from tuneyard.training.collate import Collator
from tuneyard.training.order import Batches

LENGTH, BATCH, PAD, IGNORED = 1024, 8, 1, -100
WORDS = 6000
Matrix = npt.NDArray[np.int32]
Tensors = tuple[torch.Tensor, torch.Tensor]


def words() -> list[str]:
    random = np.random.default_rng(1)
    return ["".join(random.choice(list("abcdefghijklmnopqrstuvwxyz"), size)) for size in random.integers(2, 9, WORDS)]


def write_texts(path: Path, mib: int) -> None:
    """Documents of 20 to 4,000 words by a power law."""
    random, vocabulary = np.random.default_rng(0), np.array(words(), dtype=object)
    weights = 1 / np.arange(10, WORDS + 10)
    weights /= weights.sum()
    written, number = 0, 0
    with path.open("w") as stream:
        while written < mib << 20:
            count = int(np.clip(random.lognormal(6.0, 0.8), 20, 4000))
            written += stream.write(json.dumps({"text": f"{number} " + " ".join(random.choice(vocabulary, count, p=weights))}) + "\n")
            number += 1


def tokenizer() -> Any:
    known = words()
    lines = tuple(" ".join(known[i : i + 50]) for i in range(0, WORDS, 50))
    return tokenizer_of([], eos="<|end|>", chat_template=None, size=8000, texts=lines * 3)


class Ours:
    """Tuneyard's way: what a rank does, up to the tensors of a micro-batch."""

    def __init__(self, source: Path, cache: Path, known: Any) -> None:
        self.source, self.cache, self.known = source, cache, known

    def prepared(self, *, streaming: bool, cache: Path | None = None) -> Prepared:
        about: dict[str, Any] = {"source": str(self.source), "streaming": streaming, "pack": True, "maxLength": LENGTH}
        if cache is None:
            about["workers"] = 0  # all shards are there
        return prepare(TrainData.model_validate(about), self.known, objective="clm", seed=0, cache_dir=cache or self.cache)

    def batches(self, prepared: Prepared, start: int = 0) -> Iterator[dict[str, Any]]:
        steps = Batches(rows_at=prepared.order.at_each, micro_batch=BATCH, grad_accum=1, rank=0, workers=1, start=start, stop=1 << 40)
        loader = DataLoader(by_batches(prepared.train), batch_sampler=steps, collate_fn=Collator(PAD), generator=torch.Generator())
        return iter(loader)

    def opened(self, streaming: bool, state: Any) -> Iterator[dict[str, Any]]:
        prepared = self.prepared(streaming=streaming)
        if state is None:
            return self.batches(prepared)
        prepared.place(state["cursors"])
        return self.batches(prepared, state["step"])

    def state(self, streaming: bool, fraction: float) -> dict[str, Any]:
        """As a checkpoint holds it."""
        prepared = self.prepared(streaming=streaming)
        step = int(prepared.order.epoch_rows * fraction) // BATCH
        found: dict[str, Any] = json.loads(json.dumps({"step": step, "cursors": prepared.cursors(step * BATCH)}))
        return found

    def ways(self, rows: int) -> list[Way]:
        def way(name: str, streaming: bool) -> Way:
            return Way(
                f"Tuneyard, {name}",
                rows,
                lambda state: self.opened(streaming, state),
                lambda fraction: self.state(streaming, fraction),
                lambda batch: len(batch["input_ids"]),
            )

        return [way("streamed (shards)", True), way("prepared", False)]

    def exported(self, rows: int) -> tuple[Matrix, Matrix]:
        """Tokens and labels of the first rows in Tuneyard's order, filled up to LENGTH."""
        ids, labels = np.full((rows, LENGTH), PAD, np.int32), np.full((rows, LENGTH), IGNORED, np.int32)
        batches = self.batches(self.prepared(streaming=True))
        for start in range(0, rows, BATCH):
            batch = next(batches)
            width = batch["input_ids"].shape[1]
            ids[start : start + BATCH, :width], labels[start : start + BATCH, :width] = batch["input_ids"], batch["labels"]
        return ids, labels


def write_peers(folder: Path, ids: Matrix, labels: Matrix) -> None:
    """The rows as Arrow (`datasets`), MDS (Mosaic) and Parquet of tensors (Ray), each written by its own library."""
    import datasets
    import ray
    from streaming import MDSWriter

    fixed = {name: pa.FixedSizeListArray.from_arrays(pa.array(each.ravel()), LENGTH) for name, each in _named(ids, labels).items()}
    datasets.Dataset(pa.table(fixed)).save_to_disk(str(folder / "arrow"), num_shards=8)
    kinds = dict.fromkeys(fixed, f"ndarray:int32:{LENGTH}")
    with MDSWriter(out=str(folder / "mds"), columns=kinds) as writer:
        for row_ids, row_labels in zip(ids, labels, strict=True):
            writer.write({"input_ids": row_ids, "labels": row_labels})
    ray.init(num_cpus=2, object_store_memory=1 << 30, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    for number, part in enumerate(np.array_split(np.arange(len(ids)), 8)):
        both = ray.data.from_numpy([np.stack([ids[part], labels[part]], axis=1)])
        both.map_batches(lambda rows: _named(rows["data"][:, 0], rows["data"][:, 1])).write_parquet(str(folder / "parquet" / str(number)))
    ray.shutdown()


def _named(ids: Any, labels: Any) -> dict[str, Any]:
    return {"input_ids": ids, "labels": labels}


def peers(folder: Path, rows: int) -> list[Way]:
    """All but Ray Data. A state is taken from the loader after so many batches."""
    import datasets
    from streaming import StreamingDataLoader, StreamingDataset
    from torchdata.stateful_dataloader import StatefulDataLoader

    datasets.disable_progress_bars()

    def mapped() -> Any:
        return datasets.load_from_disk(str(folder / "arrow")).with_format("torch")

    def by_rows(_state: Any) -> Iterator[Any]:
        rows_ = mapped()
        sampler = BatchSampler(RandomSampler(rows_, generator=torch.Generator().manual_seed(0)), BATCH, drop_last=True)
        return iter(DataLoader(rows_, sampler=sampler, batch_size=None))

    def iterable() -> Any:
        files = sorted(str(path) for path in (folder / "arrow").glob("*.arrow"))
        rows_ = datasets.load_dataset("arrow", data_files=files, split="train", streaming=True)
        return rows_.shuffle(seed=0, buffer_size=1000).with_format("torch")

    def streamed(_state: Any) -> Iterator[Any]:
        return iter(DataLoader(iterable(), batch_size=BATCH))

    def stateful(source: Any, state: Any, **given: Any) -> Iterator[Any]:
        loader = StatefulDataLoader(source, generator=torch.Generator().manual_seed(0), batch_size=BATCH, **given)
        if state is not None:
            loader.load_state_dict(state)
        return iter(loader)

    def stateful_state(source: Any, fraction: float, **given: Any) -> Any:
        loader = StatefulDataLoader(source, generator=torch.Generator().manual_seed(0), batch_size=BATCH, **given)
        batches = iter(loader)
        for _ in islice(batches, max(1, int(rows * fraction) // BATCH)):
            pass
        return loader.state_dict()

    def mosaic(state: Any) -> Iterator[Any]:
        clean_shared()
        rows_ = StreamingDataset(local=str(folder / "mds"), shuffle=True, shuffle_seed=0, batch_size=BATCH)
        loader = StreamingDataLoader(rows_, batch_size=BATCH)
        if state is not None:
            loader.load_state_dict(state)
        for batch in loader:
            yield {name: each.long() for name, each in batch.items()}

    def mosaic_state(fraction: float) -> Any:
        clean_shared()
        rows_ = StreamingDataset(local=str(folder / "mds"), shuffle=True, shuffle_seed=0, batch_size=BATCH)
        next(iter(rows_))
        return rows_.state_dict(num_samples=int(rows * fraction) // BATCH * BATCH, from_beginning=True)

    def clean_shared() -> None:
        from streaming.base.util import clean_stale_shared_memory

        clean_stale_shared_memory()

    def count(batch: Any) -> int:
        return len(batch["input_ids"])

    return [
        Way("datasets, mapped Arrow + DataLoader", rows, by_rows, None, count),
        Way("datasets, streaming + DataLoader", rows, streamed, None, count),
        Way(
            "datasets, mapped + StatefulDataLoader",
            rows,
            lambda state: stateful(mapped(), state, shuffle=True, drop_last=True),
            lambda fraction: stateful_state(mapped(), fraction, shuffle=True, drop_last=True),
            count,
        ),
        Way(
            "datasets, streaming + StatefulDataLoader",
            rows,
            lambda state: stateful(iterable(), state),
            lambda fraction: stateful_state(iterable(), fraction),
            count,
        ),
        Way("MosaicML Streaming", rows, mosaic, mosaic_state, count),
    ]


def ray_data(folder: Path, rows: int) -> Way:
    def batches(_state: Any) -> Iterator[Any]:
        import ray

        files = sorted(str(path) for path in (folder / "parquet").rglob("*.parquet"))
        data = ray.data.read_parquet(files, shuffle="files")
        return iter(data.iter_torch_batches(batch_size=BATCH, local_shuffle_buffer_size=1000, dtypes=torch.int64, device="cpu"))

    return Way("Ray Data, two CPUs", rows, batches, None, lambda batch: len(batch["input_ids"]))


def checked(ways: Sequence[Way]) -> None:
    """Every way gives the same kind of tensors."""
    for way in ways:
        batch = next(way.batches(None))
        for name in ("input_ids", "labels"):
            assert batch[name].dtype == torch.int64, f"{way.name}: {name} is {batch[name].dtype}"
            assert batch[name].shape[0] == BATCH, f"{way.name}: {name} is {tuple(batch[name].shape)}"
            assert batch[name].shape[1] <= LENGTH
