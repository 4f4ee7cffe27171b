"""Builds the token rows of a split. The result is the same on every machine, at any time and in any process."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from tuneyard.data.canonical import Canonical
from tuneyard.data.file_types import DataFile
from tuneyard.data.holdout import held_out_by_hash
from tuneyard.data.packing import laid_out
from tuneyard.data.samples import Placed, Tally, samples_of
from tuneyard.data.stream.reading import SplitData
from tuneyard.data.stream.shards import Samples, Shard, ShardFacts, write_shard
from tuneyard.data.stream.split_recipe import Clock, SplitRecipe
from tuneyard.data.tokens import IGNORED, Encoded, Encoder, digest_of

_BATCH = 256


@dataclass(frozen=True)
class Recipe(SplitRecipe[Shard]):
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

    def open(self, path: Path) -> Shard:
        """Open a shard. Raises OSError for a missing shard, ValueError for a damaged one."""
        return Shard(path)

    def begin_worker(self) -> None:
        """Prepare a forked process that only builds shards: it uses one thread."""
        os.environ["TOKENIZERS_PARALLELISM"] = "false"

    def write(self, data: SplitData, path: Path, clock: Clock, content: str) -> None:
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

    def _encoded(self, samples: Iterator[Placed], facts: ShardFacts, tally: Tally, clock: Clock) -> list[Encoded]:
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
