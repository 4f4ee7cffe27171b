"""How close an output is to its reference: exact match, ROUGE-L, BLEU."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

_WORD = re.compile(r"[^\W_]+")


def exact_match(output: str, reference: str) -> float:
    """1.0 if both are the same text after Unicode NFC, white space apart: runs of it count as one blank, none at the ends."""
    return float(_normalised(output) == _normalised(reference))


def _normalised(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())


def rouge_l(output: str, reference: str) -> float:
    """F1 of the longest common subsequence of words (ROUGE-L, Lin 2004), 0..1.

    Words are runs of letters and digits in lower case: on ASCII those of the `rouge-score` package without stemming, which
    drops all other scripts.
    """
    words, expected = _WORD.findall(output.lower()), _WORD.findall(reference.lower())
    common = _common_subsequence_length(words, expected)
    return 2 * common / (len(words) + len(expected)) if common else 0.0


def _common_subsequence_length(a: Sequence[str], b: Sequence[str]) -> int:
    """Bit-parallel (Hyyrö 2004): one machine-wide step per word, where the usual table would keep the engine's process busy."""
    places: dict[str, int] = {}
    for i, word in enumerate(a):
        places[word] = places.get(word, 0) | 1 << i
    everywhere = (1 << len(a)) - 1
    open_places = everywhere
    for word in b:
        matched = open_places & places.get(word, 0)
        open_places = ((open_places + matched) | (open_places - matched)) & everywhere
    return len(a) - open_places.bit_count()


@dataclass(frozen=True)
class BleuCounts:
    """What corpus BLEU is made of; the counts of parts add up to those of the whole."""

    matches: tuple[int, ...] = (0, 0, 0, 0)
    """n-grams of outputs that are in their references, for n = 1 to 4."""
    totals: tuple[int, ...] = (0, 0, 0, 0)
    """n-grams of outputs, for n = 1 to 4."""
    output_words: int = 0
    reference_words: int = 0

    @classmethod
    def of(cls, outputs: Sequence[str], references: Sequence[str]) -> BleuCounts:
        """Count with sacrebleu's 13a tokens, one reference per output."""
        from sacrebleu.metrics import BLEU

        if not outputs:
            return cls()
        score = BLEU().corpus_score(list(outputs), [list(references)])
        return cls(tuple(map(int, score.counts)), tuple(map(int, score.totals)), int(score.sys_len), int(score.ref_len))

    def __add__(self, other: BleuCounts) -> BleuCounts:
        return BleuCounts(
            tuple(a + b for a, b in zip(self.matches, other.matches, strict=True)),
            tuple(a + b for a, b in zip(self.totals, other.totals, strict=True)),
            self.output_words + other.output_words,
            self.reference_words + other.reference_words,
        )

    def score(self) -> float:
        """Corpus BLEU, 0..100, as `sacrebleu.corpus_bleu` gives it (exponential smoothing)."""
        from sacrebleu.metrics import BLEU

        return float(
            BLEU.compute_bleu(list(self.matches), list(self.totals), self.output_words, self.reference_words, smooth_method="exp").score
        )
