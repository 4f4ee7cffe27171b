"""Samples become tokens with labels; the label of a token without loss is -100.

Tokens with loss: in a chat, the assistant's turns with their end marks; in a completion, the completion and its end token; in a text, all
tokens. The first token of a document never carries loss, because no token comes before it. A preference pair becomes two samples, the
chosen one and the rejected one, each with its prompt; the tokens of the answers carry loss.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from itertools import islice
from multiprocessing import get_context
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tuneyard.api import BadInput
from tuneyard.api.data import ControlTokens
from tuneyard.data.borders import continued_tokens, with_exact_offsets
from tuneyard.data.by_offsets import tokens_by_offsets, tokens_in_pieces
from tuneyard.data.chat import ChatTemplate, Rendered, render
from tuneyard.data.control_tokens import NONE, Controls, Spelled, cut_at_seams
from tuneyard.data.messages import BadSample
from tuneyard.data.one_pass import OnePass, one_pass
from tuneyard.data.packing import piece_borders
from tuneyard.data.roles import Chat, Completion, Pair, Sample, Text, canonical_json
from tuneyard.data.samples import Placed
from tuneyard.data.token_spans import Range, Tokens, all_count, tokens_of
from tuneyard.data.turns import end_text, ends_of, with_ends

IGNORED = -100
Loss = Literal["assistant", "completion", "all"]
Overlong = Literal["truncate", "drop", "error", "split"]
Ints = npt.NDArray[np.int32]
_BATCH = 256
_NO_LOSS = "no token left that carries loss"


@dataclass
class Encoded:
    """Tokens of a batch of samples. `hashes`: equal for equal samples, for pieces of one document, and for both samples of a pair.
    `splits`: as in `Placed`.
    """

    ids: list[Ints] = field(default_factory=list)
    labels: list[Ints] = field(default_factory=list)
    hashes: list[int] = field(default_factory=list)
    splits: list[int] = field(default_factory=list)
    samples: int = 0
    truncated: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    bad: list[tuple[str, str, str]] = field(default_factory=list)
    cut_answers: int = 0
    """Kept samples whose last tokens with loss were cut off; those of a pair count one by one."""
    alike: int = 0
    """Dropped pairs whose samples are equal after the cut."""
    muted: int = 0
    """Number of turns without loss because the template leaves their reasoning out."""
    reasons: bool = False
    tools: bool = False
    """At least one sample has reasoning (`reasons`) or tools (`tools`)."""
    as_text: Counter[str] = field(default_factory=Counter)
    as_tokens: Counter[str] = field(default_factory=Counter)
    """Number of samples whose texts spell a control token, by token, as in `Spelled`."""

    def count_spelled(self, spelled: Spelled) -> None:
        self.as_text.update(spelled.as_text)
        self.as_tokens.update(spelled.as_tokens)

    def append(self, ids: Ints, labels: Ints, digest: int, split: int) -> None:
        self.ids.append(ids)
        self.labels.append(labels)
        self.hashes.append(digest)
        self.splits.append(split)


@dataclass(frozen=True)
class Encoder:
    """Tokenises samples. `template`: needed for chats only. `overlong` split: cut long documents into pieces, and keep all pieces.

    `together`: that many samples in turn belong to one row; 2 for pairs. `control_tokens`: a value of data.controlTokens.
    """

    tokenizer: Any
    loss: Loss
    max_length: int
    overlong: Overlong
    template: ChatTemplate | None = None
    together: int = 1
    control_tokens: ControlTokens = "text"

    def encode(self, batch: Sequence[Placed]) -> Encoded:
        """Tokenise a batch. Faults of single samples are in the result. Raises BadInput for faults of the whole data set."""
        encoded = Encoded(samples=len(batch))
        for kind, encode in ((Chat, self._chats), (Completion, self._completions), (Text, self._texts)):
            placed = [p for p in batch if isinstance(p.sample, kind)]
            for p, tokens in encode(placed, encoded) if placed else ():
                self._add(encoded, p, tokens)
        pairs = [(p, p.sample.halves) for p in batch if isinstance(p.sample, Pair)]
        for p, halves in self._halves(pairs, encoded) if pairs else ():
            self._add_pair(encoded, p, halves)
        return encoded

    def _add(self, encoded: Encoded, placed: Placed, tokens: Tokens) -> None:
        ids, labels = _with_labels(tokens)
        digest = digest_of(placed.sample)
        for start, end in self._borders(encoded, placed, len(ids)):
            labels[start : start + 1] = IGNORED
            if (labels[start:end] == IGNORED).all():
                encoded.dropped.append(f"{placed.place}: {self._no_loss(labels)}")
                continue
            encoded.append(ids[start:end], labels[start:end], digest, placed.split)
            encoded.cut_answers += self.overlong == "truncate" and _is_cut(labels, end)

    def _add_pair(self, encoded: Encoded, placed: Placed, halves: Sequence[Tokens]) -> None:
        """Both samples of a pair, or none: a pair without an answer teaches nothing, nor does one without a difference."""
        borders = self._borders(encoded, placed, max(len(tokens.ids) for tokens in halves))
        whole = [_with_labels(tokens) for tokens in halves]
        cut = [(ids[start:end], labels[start:end]) for start, end in borders for ids, labels in whole]
        for _, labels in cut:
            labels[:1] = IGNORED
        if any((labels == IGNORED).all() for _, labels in cut):
            encoded.dropped.append(f"{placed.place}: {self._no_loss(*(labels for _, labels in whole))}")
        elif cut and np.array_equal(cut[0][0], cut[1][0]):
            encoded.dropped.append(f"{placed.place}: chosen and rejected do not differ within maxLength {self.max_length}")
            encoded.alike += 1
        else:
            encoded.cut_answers += sum(_is_cut(labels, end) for _, end in borders for _, labels in whole)
            digest = digest_of(placed.sample)
            for ids, labels in cut:
                encoded.append(ids, labels, digest, placed.split)

    def _no_loss(self, *whole: Ints) -> str:
        """The reason why samples teach nothing: with a cut, the maxLength that would keep them whole."""
        longest = max(map(len, whole))
        if longest <= self.max_length or any((labels == IGNORED).all() for labels in whole):
            return _NO_LOSS
        first = max(int(np.flatnonzero(labels != IGNORED)[0]) for labels in whole)
        return f"{_NO_LOSS} within maxLength {self.max_length}: it begins at token {first + 1:,}, and {longest:,} tokens hold the whole"

    def _borders(self, encoded: Encoded, placed: Placed, length: int) -> list[Range]:
        """The pieces of a sample of `length` tokens to keep. Raises BadInput if it is too long and `overlong` is error."""
        if length <= self.max_length:
            return [(0, length)]
        if self.overlong == "error":
            raise BadInput(
                f"{placed.place}: {length} tokens, more than maxLength {self.max_length}",
                "raise data.maxLength, shorten the sample, or set data.overlong: truncate or drop",
            )
        if self.overlong == "split":
            return piece_borders(length, self.max_length)
        (encoded.dropped if self.overlong == "drop" else encoded.truncated).append(f"{placed.place}: {length} tokens")
        return [] if self.overlong == "drop" else [(0, self.max_length)]

    def _halves(self, pairs: Sequence[tuple[Placed, Sequence[Sample]]], encoded: Encoded) -> Iterator[tuple[Placed, list[Tokens]]]:
        """The tokens of both samples of each pair. A pair is bad if one of its samples is."""
        samples = [Placed(pair.place, half) for pair, halves in pairs for half in halves]
        found: dict[int, Tokens] = {}
        seen = Encoded()
        for kind, encode in ((Chat, self._chats), (Completion, self._completions)):
            placed = [p for p in samples if isinstance(p.sample, kind)]
            found |= {id(p): tokens for p, tokens in encode(placed, seen)} if placed else {}
        encoded.bad.extend({place: (place, reason, advice) for place, reason, advice in reversed(seen.bad)}.values())
        encoded.muted += seen.muted
        encoded.reasons, encoded.tools = encoded.reasons or seen.reasons, encoded.tools or seen.tools
        if seen.as_text or seen.as_tokens:
            for _, (chosen, rejected) in pairs:  # both samples have the prompt, and a pair counts once
                encoded.count_spelled(self._spelled_in(chosen) | self._spelled_in(rejected))
        for number, (pair, _) in enumerate(pairs):
            halves = [found[id(p)] for p in samples[2 * number : 2 * number + 2] if id(p) in found]
            if len(halves) == 2:
                yield pair, halves

    def _chats(self, batch: list[Placed], encoded: Encoded) -> Iterator[tuple[Placed, Tokens]]:
        if self.template is None:
            raise BadInput("chats need a chat template", "set data.chatTemplate")
        need_spans = self.loss != "all"
        kept: list[tuple[Placed, Rendered]] = []
        special_tokens = self.tokenizer.special_tokens_map
        for placed in batch:
            try:
                last_only = self.loss == "completion"
                chat, spelled = self._controls.seal(placed.sample)  # type: ignore[arg-type]  # encode() hands over chats only
                rendered = render(chat, self.template, special_tokens, need_spans=need_spans, last_only=last_only)
                kept.append((placed, replace(self._with_ends(rendered), sealed=bool(spelled.as_text))))
                encoded.count_spelled(spelled)
            except BadSample as error:
                encoded.bad.append((placed.place, str(error), error.advice))
        if not kept:
            return
        encoded.muted += sum(rendered.muted for _, rendered in kept)
        encoded.reasons, encoded.tools = any(rendered.reasons for _, rendered in kept), any(rendered.tools for _, rendered in kept)
        whole = [(placed, rendered) for placed, rendered in kept if not rendered.sealed]
        if not need_spans:
            found = tokens_of(self.tokenizer, [rendered.text for _, rendered in whole], add_special_tokens=False)
            tokens = iter([all_count(ids) for ids in found])
        else:
            tokens = iter(self._with_loss([(rendered.text, rendered.spans) for _, rendered in whole]))
        sealed = [cut_at_seams(rendered.text, rendered.spans) for _, rendered in kept if rendered.sealed]
        pieces = tokens_in_pieces(self._offsets_of, sealed) if sealed else iter(())
        for placed, rendered in kept:
            found_here = next(pieces if rendered.sealed else tokens)
            yield placed, found_here if need_spans else all_count(found_here.ids)

    def _with_loss(self, chats: Sequence[tuple[str, Sequence[Range]]]) -> Iterator[Tokens]:
        quick = self._one_pass.encode(chats) if self._one_pass else [None] * len(chats)
        left = [chat for chat, tokens in zip(chats, quick, strict=True) if tokens is None]
        slow = iter(tokens_by_offsets(self._offsets_of, left))
        return (next(slow) if tokens is None else tokens for tokens in quick)

    @cached_property
    def _controls(self) -> Controls:
        return Controls.of(self.tokenizer, self.template.text if self.template is not None else None, self.control_tokens)

    @cached_property
    def _one_pass(self) -> OnePass | None:
        return one_pass(self.tokenizer)

    def _with_ends(self, rendered: Rendered) -> Rendered:
        if self._end is None or not rendered.spans:
            return rendered
        text, spans = with_ends(rendered.text, rendered.spans, self._end, self._ends)
        return rendered if text == rendered.text and tuple(spans) == rendered.spans else replace(rendered, text=text, spans=tuple(spans))

    @cached_property
    def _offsets_of(self) -> Any:
        return with_exact_offsets(self.tokenizer)

    @cached_property
    def _ends(self) -> tuple[str, ...]:
        return ends_of(self.tokenizer)

    @cached_property
    def _end(self) -> str | None:
        assert self.template is not None
        return end_text(self.tokenizer, self.template.text)

    def _completions(self, batch: list[Placed], encoded: Encoded) -> Iterator[tuple[Placed, Tokens]]:
        batch = self._looked_at(batch, encoded)
        pairs = [p.sample for p in batch if isinstance(p.sample, Completion)]
        prompts = [self._without_end(ids) for ids in plain_tokens(self.tokenizer, [p.prompt for p in pairs])]
        wholes = plain_tokens(self.tokenizer, [p.prompt + p.completion for p in pairs])
        for placed, pair, prompt, ids in zip(batch, pairs, prompts, wholes, strict=True):
            whole = ids
            if whole[: len(prompt)] != prompt:
                # A token crosses the border, but engines see the prompt's own tokens: the completion is tokenised alone.
                ((completion, _),) = continued_tokens(self.tokenizer, [(pair.completion, True)], offsets=False)
                whole = prompt + completion
            whole = self._with_end(whole)
            yield placed, Tokens(whole, ((0 if self.loss == "all" else len(prompt), len(whole)),))

    def _texts(self, batch: list[Placed], encoded: Encoded) -> Iterator[tuple[Placed, Tokens]]:
        batch = self._looked_at(batch, encoded)
        texts = [p.sample.text for p in batch if isinstance(p.sample, Text)]
        for placed, ids in zip(batch, plain_tokens(self.tokenizer, texts), strict=True):
            yield placed, all_count(self._with_end(ids))

    def _looked_at(self, batch: list[Placed], encoded: Encoded) -> list[Placed]:
        """The samples without those that spell a control token, if the policy refuses them."""
        kept = list[Placed]()
        for placed in batch:
            sample = placed.sample
            texts = (sample.prompt, sample.completion) if isinstance(sample, Completion) else (sample.text,)  # type: ignore[union-attr]
            try:
                encoded.count_spelled(self._controls.look_at(*texts))
                kept.append(placed)
            except BadSample as error:
                encoded.bad.append((placed.place, str(error), error.advice))
        return kept

    def _spelled_in(self, sample: Sample) -> Spelled:
        try:
            if isinstance(sample, Chat):
                return self._controls.seal(sample)[1]
            return self._controls.look_at(sample.prompt, sample.completion) if isinstance(sample, Completion) else NONE
        except BadSample:  # its pair is counted as bad
            return NONE

    def _with_end(self, ids: list[int]) -> list[int]:
        end = self.tokenizer.eos_token_id
        return ids if end is None or (ids and ids[-1] == end) else [*ids, end]

    def _without_end(self, ids: list[int]) -> list[int]:
        """The tokens without an end token that the tokenizer itself added."""
        return ids[:-1] if self._adds_end and ids and ids[-1] == self.tokenizer.eos_token_id else ids

    @cached_property
    def _adds_end(self) -> bool:
        (ids,) = plain_tokens(self.tokenizer, ["a"])
        return bool(ids) and ids[-1] == self.tokenizer.eos_token_id


def _with_labels(tokens: Tokens) -> tuple[Ints, Ints]:
    ids = np.array(tokens.ids, dtype=np.int32)
    labels = np.full(len(ids), IGNORED, dtype=np.int32)
    for start, end in tokens.counted:
        labels[start:end] = ids[start:end]
    return ids, labels


def _is_cut(labels: Ints, end: int) -> bool:
    """Whether a token with loss lies beyond the place of the cut."""
    return bool((labels[end:] != IGNORED).any())


def digest_of(sample: Sample) -> int:
    """A hash of a sample's content before it is tokenised."""
    return int.from_bytes(blake2b(canonical_json(sample).encode(), digest_size=8).digest(), "little")


def plain_tokens(tokenizer: Any, texts: list[str]) -> list[list[int]]:
    """Tokens of texts without a template, with the special tokens that the tokenizer adds.

    A text that begins with the beginning token, as rendered chats do, gets no second one.
    """
    begin = tokenizer.bos_token_id
    return [ids[1:] if begin is not None and ids[:2] == [begin, begin] else ids for ids in tokens_of(tokenizer, texts)]


# --- several processes ------------------------------------------------------------------------------------------------------------

_encoder_of_this_process: Encoder | None = None


def encode_all(encoder: Encoder, samples: Iterable[Placed], processes: int) -> Iterator[Encoded]:
    """Encode a stream in order, by `processes` processes; at most four batches per process are in flight."""
    stream = iter(samples)
    batches = iter(lambda: list(islice(stream, _BATCH)), [])
    if processes <= 1:
        yield from map(encoder.encode, batches)
        return
    # fork, as in torch's DataLoader: processes inherit the tokenizer, and a script needs no `__main__` guard.
    with ProcessPoolExecutor(processes, mp_context=get_context("fork"), initializer=_start_process, initargs=(encoder,)) as pool:
        running: deque[Future[Encoded]] = deque()
        for batch in batches:
            running.append(pool.submit(_encode_here, batch))
            if len(running) >= 4 * processes:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()


def _start_process(encoder: Encoder) -> None:
    global _encoder_of_this_process
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one thread per process; threads do not survive a fork anyway
    _encoder_of_this_process = encoder


def _encode_here(batch: list[Placed]) -> Encoded:
    assert _encoder_of_this_process is not None
    return _encoder_of_this_process.encode(batch)
