"""Builds the rows of a split. The result is the same on every machine, at any time and in any process."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tuneyard.data.canonical import Canonical
from tuneyard.data.file_types import DataFile
from tuneyard.data.holdout import held_out_by_hash
from tuneyard.data.packing import laid_out
from tuneyard.data.samples import Placed, Tally, samples_of
from tuneyard.data.shard_files import unfinished_name, writing_shards
from tuneyard.data.shared.place import ShardTier, Wanted, fetched
from tuneyard.data.stream.reading import SplitData
from tuneyard.data.stream.shards import Samples, Shard, ShardFacts, is_whole, write_shard
from tuneyard.data.stream.splits import Split
from tuneyard.data.tokens import IGNORED, Encoded, Encoder, digest_of

_BATCH = 256
_ITEM = TypeVar("_ITEM")


@dataclass(frozen=True)
class Recipe:
    """All inputs of rows. `about`: the settings of `encoder`, serialisable as JSON. `only_held_out`: shards have no training rows, and only
    held-out samples are tokenised.
    """

    files: tuple[DataFile, ...]
    canonical: Canonical
    encoder: Encoder
    pack: bool
    held_out: float
    seed: int
    about: dict[str, Any] = field(hash=False)
    only_held_out: bool = False

    @property
    def has_samples(self) -> bool:
        """Whether a row may hold several samples."""
        return self.pack or self.encoder.together > 1

    @cached_property
    def key(self) -> str:
        """A hash of all inputs except the files."""
        libraries = {name: version(name) for name in ("tokenizers", "transformers", "trl")}
        inputs = [self.about, libraries, self.held_out, self.seed if self.held_out else 0, *(["held out"] if self.only_held_out else [])]
        text = json.dumps(inputs, sort_keys=True, default=str)
        return sha256(text.encode()).hexdigest()

    @cached_property
    def stream_key(self) -> str:
        """A hash of settings and files: two parts of a mixture often share their settings."""
        files = [f"{file.reader} {file.uri} {file.mark} {file.size_bytes}" for file in self.files]
        return sha256("\n".join([self.key, *files]).encode()).hexdigest()[:32]

    def mark(self, split: Split) -> str:
        """A hash that names the rows of a split without reading it, from metadata of its files."""
        parts = [self.key]
        for piece in split.pieces:
            file = self.files[piece.file]
            parts.append(f"{file.reader} {file.uri} {file.mark} {file.size_bytes} {piece.start} {piece.end}")
        return sha256("\n".join(parts).encode()).hexdigest()[:32]

    def build(self, split: Split, folder: Path, shared: ShardTier | None = None) -> Path:
        """The shard of a split in `folder`: found by its mark, else by its content, there or in `shared`, else built. Raises BadInput,
        StorageError.
        """
        named = folder / f"{self.mark(split)}.shard"
        if named.exists():
            return named
        clock = _Clock()
        with clock("storage"):
            data = SplitData(self.files, split)
            content = sha256(f"{self.key} {data.content()}".encode()).hexdigest()[:32]
        by_content = folder / f"{content}.content.shard"
        wanted = Wanted(content, by_content, named.stem)
        while True:
            if not is_whole(by_content) and not fetched(shared, wanted, lambda path: _why_not(path, content)):
                began = time.monotonic()
                self._build(data, by_content, clock, content)
                if shared is not None:
                    shared.store(wanted, time.monotonic() - began)
            if _link(by_content, named):
                return named

    def open(self, path: Path) -> Shard:
        """Open a shard. Raises OSError for a missing shard, ValueError for a damaged one."""
        return Shard(path)

    def begin_worker(self) -> None:
        """Prepare a forked process that only builds shards: it uses one thread."""
        os.environ["TOKENIZERS_PARALLELISM"] = "false"

    def _build(self, data: SplitData, path: Path, clock: _Clock, content: str) -> None:
        tally = Tally("", max_bad_fraction=1.0)
        facts = ShardFacts(source_bytes=data.read_bytes, content=content, seconds=clock.seconds)
        encoded = self._encoded(clock.each("decoding", samples_of(data.records(), tally, self.canonical)), facts, tally, clock)
        with clock("packing"):
            lengths = np.fromiter((len(ids) for each in encoded for ids in each.ids), dtype=np.int64)
            hashes = np.fromiter((digest for each in encoded for digest in each.hashes), dtype=np.uint64)
            aside = held_out_by_hash(hashes, self.held_out, self.seed)
            train, held_out = self._layout(lengths, np.flatnonzero(~aside)), self._layout(lengths, np.flatnonzero(aside))
            ids = np.concatenate([ids for each in encoded for ids in each.ids] or [np.zeros(0, np.int32)])
            labels = np.concatenate([labels for each in encoded for labels in each.labels] or [np.zeros(0, np.int32)])
            counted = labels != IGNORED
            facts.rows, facts.held_out = len(train), len(held_out)
            kept = np.repeat(~aside, lengths) if lengths.size else np.zeros(0, dtype=bool)
            facts.tokens, facts.loss_tokens = int(kept.sum()), int((counted & kept).sum())
        facts.samples, facts.bad, facts.left_out = tally.good, tally.bad, tally.left_out
        facts.bad_examples, facts.advice = tally.bad_examples, tally.advice if tally.bad else ""
        small = ids.size == 0 or int(ids.max()) < 1 << 16
        write_shard(path, Samples(ids, counted, lengths), [*train, *held_out], facts, packed=self.has_samples, small=small)

    def _encoded(self, samples: Iterator[Placed], facts: ShardFacts, tally: Tally, clock: _Clock) -> list[Encoded]:
        found = []
        while batch := list(islice(samples, _BATCH)):
            if self.only_held_out:
                batch = self._held_out_of(batch)
            with clock("tokenising"):
                encoded = self.encoder.encode(batch)
            for place, reason, advice in encoded.bad:
                tally.became_bad(place, reason, advice=advice)
            facts.truncated += len(encoded.truncated)
            facts.dropped += len(encoded.dropped)
            facts.dropped_examples.extend(encoded.dropped[: 5 - len(facts.dropped_examples)])
            facts.cut_answers += encoded.cut_answers
            facts.alike += encoded.alike
            facts.muted += encoded.muted
            facts.count_spelled(encoded.as_text, encoded.as_tokens)
            facts.reasons, facts.tools = facts.reasons or encoded.reasons, facts.tools or encoded.tools
            found.append(encoded)
        return found

    def _held_out_of(self, batch: list[Placed]) -> list[Placed]:
        hashes = np.fromiter((digest_of(placed.sample) for placed in batch), dtype=np.uint64)
        aside = held_out_by_hash(hashes, self.held_out, self.seed).tolist()
        return [placed for placed, chosen in zip(batch, aside, strict=True) if chosen]

    def _layout(self, lengths: Any, chosen: Any) -> Sequence[Sequence[int]]:
        return laid_out(lengths, chosen, self.encoder.max_length, pack=self.pack, together=self.encoder.together)


class _Clock:
    """Seconds by kind of work."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, kind: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[kind] = self.seconds.get(kind, 0.0) + time.perf_counter() - began

    def each(self, kind: str, items: Iterator[_ITEM]) -> Iterator[_ITEM]:
        """The items; the clock counts the time to get each."""
        while True:
            began = time.perf_counter()
            item = next(items, None)
            self.seconds[kind] = self.seconds.get(kind, 0.0) + time.perf_counter() - began
            if item is None:
                return
            yield item


def _why_not(path: Path, content: str) -> str:
    """Why the file at `path` is not the shard of this content, or an empty text."""
    try:
        found = Shard(path).facts.content
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"it is no shard of rows: {error}"
    return "" if found == content else "it has the rows of other data"


def _link(there: Path, name: Path) -> bool:
    """Link a shard to another name. False: another process has removed the shard to make room."""
    beside = unfinished_name(name)
    with writing_shards(name.parent):
        try:
            try:
                os.link(there, beside)
            except FileNotFoundError:
                return False
            except OSError:  # a file system without hard links
                try:
                    content = there.read_bytes()
                except FileNotFoundError:
                    return False
                beside.write_bytes(content)
            beside.rename(name)
        finally:
            beside.unlink(missing_ok=True)  # POSIX: a rename onto another link of the same file does nothing
    return True
