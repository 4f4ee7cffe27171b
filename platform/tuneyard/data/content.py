"""What the rows of a data set are, by hashes. A checkpoint stores them, so that a resume recognises its data, and says what has changed.

Hashes are computed once, while a cache entry is written. They are those of samples, not of files: data may move, and a comment in a file
of another form changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from tuneyard.api import BadInput
from tuneyard.data.cache import MANIFEST

FILE = "content.npy"
_OF_SAMPLES, _OF_FILE = "samples", "file"
_THEN = "when the checkpoint was written"
_RESTORE = "restore the {} to resume, or start again in another output"
_MORE = "to train on all of them, start in another output from the model of this run; to finish this run, take the new ones out"
_REASONS = {
    "tokenizer": "the tokenizer or its chat template is another",
    "template": "the text of data.chatTemplate is another",
    "code": "this version of Tuneyard tokenises them in another way",
    "libraries": "tokenizers, transformers or trl has another version",
}
"""Why the same samples give other tokens, by the name of an input in `Content.about`."""

_PLACES = ("source", "from", "path", "split", "fileType", "name")
"""Fields that say where samples are. Where the samples are the same, they explain nothing."""

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Content:
    """The training samples of one data set, in the order of its files. `texts`: a hash of each sample before it is tokenised. `tokens`: of
    its tokens and labels. `about`: all other inputs of tokens. `read`: samples that were read, with those that are not trained on.
    `layout`: which samples share a row; empty where each has its own.
    """

    texts: Hashes
    tokens: Hashes
    about: Mapping[str, Any]
    read: int
    layout: str = ""
    kind: str = _OF_SAMPLES

    @classmethod
    def of_entry(cls, entry: Path, about: Mapping[str, Any], *, read: int, rows: str, layout: str = "") -> Content:
        """The content of a cache entry; without hashes of samples, a hash of its file `rows`."""
        if (entry / FILE).exists():
            texts, tokens = np.load(entry / FILE, mmap_mode="r")
            return cls(texts, tokens, about, read, layout)
        whole = json.loads((entry / MANIFEST).read_text())["files"][rows][1]
        hashes = np.frombuffer(bytes.fromhex(whole), np.uint64)
        return cls(hashes, hashes, about, read, kind=_OF_FILE)

    @cached_property
    def record(self) -> dict[str, Any]:
        """The content as a checkpoint stores it."""
        return {
            "kind": self.kind,
            "samples": self.tokens.size,
            "read": self.read,
            "texts": _hash(self.texts),
            "tokens": _hash(self.tokens),
            "layout": self.layout,
            "in any order": int(self.tokens.sum(dtype=np.uint64)),
            "about": dict(self.about),
        }

    def check(self, before: Mapping[str, Any], uri: str, changed: Mapping[str, str]) -> None:
        """Raises BadInput unless these are the rows of the record `before`. `changed`: changed settings of the data: field -> words."""
        if all(before[name] == self.record[name] for name in ("tokens", "layout")):
            return
        what, advice = self._difference(before, changed)
        raise BadInput(f"{uri} has {what}", advice)

    def _difference(self, before: Mapping[str, Any], changed: Mapping[str, str]) -> tuple[str, str]:
        count, now = int(before["samples"]), self.tokens.size
        of_tokens = list(without_places(changed).values())
        settings, packing = in_brackets(list(changed.values())), in_brackets(of_tokens)
        restore = _RESTORE.format("data and settings" if changed else "data")
        if self.kind == _OF_FILE:
            return f"other rows than {_THEN}{settings}", restore
        if before["tokens"] == self.record["tokens"]:
            return f"the same {now:,} samples as {_THEN}, packed into other rows{packing}", _RESTORE.format("settings")
        if before["texts"] == self.record["texts"]:
            reasons = [why for name, why in _REASONS.items() if before["about"].get(name) != self.about.get(name)]
            why = "; ".join([*of_tokens, *reasons]) or "other tokens count"
            return f"the same {now:,} samples as {_THEN}, and they give other tokens: {why}", _RESTORE.format("settings")
        if count == now and before["in any order"] == self.record["in any order"]:
            return f"the same {now:,} samples as {_THEN}, in another order{packing}", _RESTORE.format("order of the data")
        if count < now and _hash(self.tokens[:count]) == before["tokens"]:
            return f"the same {count:,} samples as {_THEN}, and {now - count:,} more after them", f"{_MORE} (data.limit: {before['read']})"
        return f"other samples than {_THEN} ({count:,} then, {now:,} now){settings}", restore


def knows(before: Mapping[str, Any] | None, now: Content) -> bool:
    """Whether a checkpoint's record can be compared. A checkpoint of an earlier version has none, or one of another kind."""
    return before is not None and before.get("kind") == now.kind


def without_places(changed: Mapping[str, str]) -> dict[str, str]:
    """The changed settings without those that say where samples are."""
    return {field: words for field, words in changed.items() if field.rpartition(".")[2] not in _PLACES}


def in_brackets(words: Sequence[str]) -> str:
    """` (a; b)` to append to a sentence; nothing where there are no words."""
    return f" ({'; '.join(words)})" if words else ""


def layout_of(rows: Sequence[Sequence[int]]) -> str:
    """A hash of packed rows, each a list of numbers of samples."""
    sizes = np.fromiter(map(len, rows), dtype=np.int64)
    items = np.fromiter((item for row in rows for item in row), dtype=np.int64)
    return xxhash.xxh3_128_hexdigest(np.concatenate([sizes, items]).tobytes())


def sample_hash(ids: Any, labels: Any) -> int:
    """A hash of one sample's tokens and of those that carry loss. `ids`, `labels`: contiguous arrays."""
    return xxhash.xxh3_64_intdigest(labels, seed=xxhash.xxh3_64_intdigest(ids))


def _hash(hashes: Hashes) -> str:
    return xxhash.xxh3_128_hexdigest(hashes.tobytes())
