"""What a probe of a data set says about training on it: what cannot work, and what is probably not meant. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tuneyard.api import TrainData
from tuneyard.data.faults import one_of_each
from tuneyard.data.probe import Probe

_Z = 3.3
"""Of the lower bound for the share of bad rows: one in a thousand data sets is refused by bad luck at most."""
_FEW_CUT = 0.02
"""Share of cut samples that is not worth a word: `tuneyard init` sets maxLength for 99 % of samples."""
_STEP = 64


@dataclass(frozen=True)
class Finding:
    """`field`: of `data`; empty: the data themselves. `fatal`: training would be refused, or learn nothing."""

    field: str
    cause: str
    next_step: str
    fatal: bool = False

    def __str__(self) -> str:
        return f"{self.cause}; {self.next_step}"


def findings(data: TrainData, found: Probe) -> Iterator[Finding]:
    """The findings of one data set."""
    yield from _bad_rows(data, found)
    continues = data.pack and found.format == "text" and data.overlong == "truncate"
    if found.tokens and not continues:
        yield from _lengths(data, found)
    if found.glued and found.has_template and "chat" not in data.model_fields_set:
        yield Finding(
            "chat",
            f'prompts run into their answers ("{found.glued}"), and the chat template of the model is not used',
            "set data.chat: true to use it, data.template: response for a mark between them, or data.chat: false to keep them as they are",
        )


def _bad_rows(data: TrainData, found: Probe) -> Iterator[Finding]:
    if not found.bad:
        return
    share = found.bad / found.rows
    what = "rows" if found.complete else "first rows" if found.is_head else "rows that were looked at"
    cause = f"{found.bad:,} of {found.rows:,} {what} cannot be used, such as {one_of_each(found.bad_examples)}"
    step = found.advice or "repair them; `tuneyard data inspect --tokenizer MODEL` shows more"
    surely = share if found.complete else 0.0 if found.is_head else _lower_bound(found.bad, found.rows)
    if not found.tokens or surely > data.max_bad_fraction:
        yield Finding("", f"{cause}; data.maxBadFraction tolerates {data.max_bad_fraction:.1%}", step, fatal=True)
    elif share > data.max_bad_fraction:
        yield Finding("", cause, step)


def _lower_bound(count: int, of: int) -> float:
    """The lower end of Wilson's interval for a share."""
    share, spread = count / of, _Z * _Z / of
    return (share + spread / 2 - _Z * math.sqrt(share * (1 - share) / of + spread / (4 * of))) / (1 + spread)


def _lengths(data: TrainData, found: Probe) -> Iterator[Finding]:
    limit, count = data.max_length, len(found.tokens)
    longer = sum(tokens > limit for tokens in found.tokens)
    if not longer:
        return
    enough = f"set data.maxLength: {_holding(found.tokens, 0.99)}, which holds 99 % of the samples whole"
    looked = "all samples" if found.complete else f"the {'first ' * found.is_head}{count:,} samples that were looked at"
    if data.overlong == "error":
        cause = f"{longer:,} of {looked} have more tokens than maxLength {limit}, up to {max(found.tokens):,}, and overlong is error"
        yield Finding("maxLength", cause, enough, fatal=True)
        return
    lost = sum(needed > limit for needed in (found.tokens if data.overlong == "drop" else found.needed))
    if lost == count:
        least = min(found.tokens if data.overlong == "drop" else found.needed)
        why = (
            f"each has more tokens, {least:,} at least"
            if data.overlong == "drop"
            else f"the first token that carries loss is number {least:,} or later"
        )
        yield Finding("maxLength", f"maxLength {limit} leaves nothing to learn of {looked}: {why}", enough, fatal=not found.is_head)
    elif lost > _FEW_CUT * count:
        yield Finding("maxLength", f"maxLength {limit} leaves nothing to learn of {lost / count:.0%} of {looked}", enough)
    elif longer > _FEW_CUT * count:
        yield Finding(
            "maxLength", f"maxLength {limit} cuts {longer / count:.0%} of {looked}, of up to {max(found.tokens):,} tokens", enough
        )


def _holding(tokens: Sequence[int], share: float) -> int:
    """A maxLength that holds this share of the samples, in steps of 64 tokens."""
    ordered = sorted(tokens)
    longest = ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]
    return -(-longest // _STEP) * _STEP
