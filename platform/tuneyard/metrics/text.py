"""Closeness of an output to its reference: exact match, ROUGE-L, BLEU."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from itertools import zip_longest

from tuneyard.metrics.metric import Row, Totals

_WORD = re.compile(r"[^\W_]+")
_ORDERS = range(1, 5)
"""n of the n-grams of BLEU."""
BLEU_SUMS = ("rows", *(f"{kind}_{n}" for kind in ("matches", "ngrams") for n in _ORDERS), "output_words", "reference_words")


def exact_match(output: str, reference: str) -> float:
    """1.0 if both texts are equal after Unicode NFC, else 0.0. A run of white space counts as one blank, and none counts at the ends."""
    return float(_normalised(output) == _normalised(reference))


def _normalised(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())


def rouge_l(output: str, reference: str) -> float:
    """F1 of the longest common subsequence of words (ROUGE-L, Lin 2004), 0..1.

    Words are runs of letters and digits in lower case. On ASCII they are the words of the `rouge-score` package without stemming, which
    drops all other scripts.
    """
    words, expected = _WORD.findall(output.lower()), _WORD.findall(reference.lower())
    common = _common_subsequence_length(words, expected)
    return 2 * common / (len(words) + len(expected)) if common else 0.0


def _common_subsequence_length(a: Sequence[str], b: Sequence[str]) -> int:
    """Bit-parallel (Hyyrö 2004): a few integer operations per word. The usual table would keep the engine's process busy."""
    places: dict[str, int] = {}
    for i, word in enumerate(a):
        places[word] = places.get(word, 0) | 1 << i
    everywhere = (1 << len(a)) - 1
    open_places = everywhere
    for word in b:
        matched = open_places & places.get(word, 0)
        open_places = ((open_places + matched) | (open_places - matched)) & everywhere
    return len(a) - open_places.bit_count()


def json_valid(output: str) -> float:
    """1.0 if the whole output is one JSON value (RFC 8259: no NaN, no infinity), else 0.0. A Markdown fence around it is no JSON."""
    try:
        json.loads(output, parse_constant=_refuse_constant, parse_int=str)
    except (ValueError, RecursionError):
        return 0.0
    return 1.0


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def bleu_totals(rows: Sequence[Row]) -> Totals:
    """The counts of corpus BLEU, by sacrebleu with its 13a tokens: n-grams of outputs, n-grams that are in a reference, and words. Of a
    row's references, the words of the one with the closest length count."""
    from sacrebleu.metrics import BLEU

    if not rows:
        return {"rows": 0}
    # One list per place in `references`, with None where a row has fewer references.
    references = [list(place) for place in zip_longest(*(row.references for row in rows))]
    score = BLEU().corpus_score([row.output or "" for row in rows], references)
    return {
        "rows": len(rows),
        **{f"matches_{n}": int(score.counts[n - 1]) for n in _ORDERS},
        **{f"ngrams_{n}": int(score.totals[n - 1]) for n in _ORDERS},
        "output_words": int(score.sys_len),
        "reference_words": int(score.ref_len),
    }


def bleu(totals: Totals) -> float:
    """Corpus BLEU, 0..100, as by `sacrebleu.corpus_bleu` (exponential smoothing). 0 where no reference has a word."""
    from sacrebleu.metrics import BLEU

    matches, ngrams = ([int(totals[f"{kind}_{n}"]) for n in _ORDERS] for kind in ("matches", "ngrams"))
    words = int(totals["output_words"]), int(totals["reference_words"])
    return float(BLEU.compute_bleu(matches, ngrams, *words, smooth_method="exp").score)
