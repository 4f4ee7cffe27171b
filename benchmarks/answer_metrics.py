"""Metrics of answers beside the libraries that define them, on random pairs of texts in eight scripts.

python benchmarks/answer_metrics.py [--pairs 500] [--out docs/benchmarks/answer_metrics.md]

A pair is a sentence and a changed copy: characters are left out, and words (in scripts without blanks: runs of three characters) change
places. Of each script there are `--pairs` pairs, with a sentence of its own length for each. "Before" are the words of letters and digits
without marks, and 13a for all scripts, which the product had until this page was first written.
"""

from __future__ import annotations

import argparse
import platform
import random
import re
import string
import sys
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import sacrebleu
from rouge_score.rouge_scorer import RougeScorer

from tuneyard.metrics.answers import alike
from tuneyard.metrics.bleu import TOKENIZERS, bleu, bleu_totals, missing_for, tokenizer_for
from tuneyard.metrics.chrf import chrf, chrf_totals
from tuneyard.metrics.metric import added
from tuneyard.metrics.text import _common_subsequence_length, rouge_l, token_f1
from tuneyard.metrics.ways import Ways
from tuneyard.scoring.rows import ScoredRow

Pair = tuple[str, str]
SENTENCES = {
    "English": "The weather is fine today, so let's walk in the old park and feed the ducks, said Dr. Smith's 2 sons.",
    "Russian": "Сегодня хорошая погода, пойдём гулять в старый парк и кормить уток, сказали двое сыновей доктора.",
    "Arabic": "الطقس جميل اليوم، فلنذهب إلى الحديقة القديمة ونطعم البط، قال ولدا الطبيب الاثنان.",
    "Hindi": "आज मौसम अच्छा है, चलो पुराने बगीचे में टहलते हैं और बत्तखों को दाना देते हैं, डॉक्टर के दो बेटों ने कहा।",
    "Korean": "오늘은 날씨가 좋으니 오래된 공원에서 산책하고 오리에게 먹이를 주자고 의사의 두 아들이 말했다.",
    "Chinese": "今天天气很好，我们去老公园散步，喂鸭子吧，医生的两个儿子说。他们走了2公里。",
    "Japanese": "今日は天気がいいので、古い公園を散歩してカモに餌をやりましょう、と医者の二人の息子が言った。",
    "Thai": "วันนี้อากาศดี เราไปเดินเล่นในสวนเก่าและให้อาหารเป็ดกันเถอะ ลูกชายสองคนของหมอพูด",
}
BLANKLESS = ("Chinese", "Japanese", "Thai")
_OLD_WORD = re.compile(r"[^\W_]+")


def pairs_of(script: str, count: int) -> list[Pair]:
    """Changed copies of parts of the script's sentence, with the part."""
    chance, sentence = random.Random(f"{script} 1"), SENTENCES[script]
    found = []
    for _ in range(count):
        pieces = re.findall(r".{1,3}", sentence) if script in BLANKLESS else sentence.split(" ")
        start = chance.randrange(len(pieces) // 2)
        pieces = pieces[start : start + chance.randrange(4, len(pieces))]
        joint = "" if script in BLANKLESS else " "
        reference = joint.join(pieces)
        for _ in range(chance.randrange(3)):
            place = chance.randrange(len(pieces) - 1)
            pieces[place], pieces[place + 1] = pieces[place + 1], pieces[place]
        output = list(joint.join(pieces))
        for _ in range(chance.randrange(4)):
            del output[chance.randrange(len(output))]
        found.append(("".join(output).strip() or "x", reference))
    return found


def rouge_before(output: str, reference: str) -> float:
    words, expected = (_OLD_WORD.findall(text.lower()) for text in (output, reference))
    common = _common_subsequence_length(words, expected)
    return 2 * common / (len(words) + len(expected)) if common else 0.0


def squad_f1(output: str, reference: str) -> float:
    """The F1 of SQuAD 2.0's script, from its definition."""

    def words(text: str) -> list[str]:
        kept = "".join(each for each in text.lower() if each not in set(string.punctuation))
        return re.sub(r"\b(a|an|the)\b", " ", kept).split()

    ours, expected = words(output), words(reference)
    same = sum(min(ours.count(word), expected.count(word)) for word in set(ours))
    if not ours or not expected:
        return float(ours == expected)
    return 2 * same / (len(ours) + len(expected)) if same else 0.0


def lm_eval_match(output: str, reference: str) -> float:
    """`exact_match` of lm-evaluation-harness with ignore_case and ignore_punctuation, from its definition."""
    table = str.maketrans("", "", string.punctuation)
    return float(output.lower().translate(table) == reference.lower().translate(table))


def corpus(pairs: Sequence[Pair], tokenizer: str) -> float:
    rows = [ScoredRow(0, output=output, references=(reference,), ways=Ways(bleu=tokenizer)) for output, reference in pairs]
    half = len(rows) // 2
    return bleu(added(bleu_totals(rows[:half]), bleu_totals(rows[half:])))


def theirs(pairs: Sequence[Pair], tokenizer: str) -> float:
    outputs, references = zip(*pairs, strict=True)
    return float(sacrebleu.corpus_bleu(list(outputs), [list(references)], tokenize=tokenizer).score)


def mean(compare: Callable[[str, str], float], pairs: Sequence[Pair]) -> float:
    return sum(compare(*pair) for pair in pairs) / len(pairs)


def page(count: int) -> str:
    data = {script: pairs_of(script, count) for script in SENTENCES}
    lines = [
        "# Metrics of answers",
        "",
        f"`python benchmarks/answer_metrics.py --pairs {count}`, {date.today()},",
        f"Python {platform.python_version()}, one of two cores, no GPU. sacrebleu {sacrebleu.__version__}.",
        "",
        f"{count} pairs of a sentence and a changed copy in each of {len(data)} scripts: {count * len(data):,} pairs.",
        "",
        "## Before and after",
        "",
        "Each pair shares most of its text. *Before*: words without combining marks, and BLEU by 13a.",
        "",
        "| script | ROUGE-L before | ROUGE-L | BLEU before | BLEU | tokenizer | F1 of words | chrF |",
        "|---|---:|---:|---:|---:|---|---:|---:|",
    ]
    for script, pairs in data.items():
        tokenizer, _ = tokenizer_for(reference for _, reference in pairs)
        rows = [ScoredRow(0, output=output, references=(reference,)) for output, reference in pairs]
        lines.append(
            f"| {script} | {mean(rouge_before, pairs):.3f} | {mean(rouge_l, pairs):.3f} | {corpus(pairs, '13a'):.1f} | "
            f"{corpus(pairs, tokenizer):.1f} | {tokenizer} | {mean(token_f1, pairs):.3f} | {chrf(chrf_totals(rows)):.1f} |"
        )
    lines += [
        "",
        "## Beside the libraries",
        "",
        "Largest differences: BLEU of a script's corpus in two parts, and values of single pairs.",
        "SQuAD and lm-evaluation-harness stand for their scripts, written anew from their definitions.",
        "",
        "| metric | library | pairs | largest difference |",
        "|---|---|---:|---:|",
    ]
    for tokenizer in TOKENIZERS:
        lacks = missing_for(tokenizer, Path.home())
        apart = "" if lacks else f"{max(abs(corpus(pairs, tokenizer) - theirs(pairs, tokenizer)) for pairs in data.values()):.1e}"
        lines.append(f"| bleu, {tokenizer} | sacrebleu | {count * len(data):,} | {apart or 'not measured: not installed'} |")
    every = [pair for pairs in data.values() for pair in pairs]
    plain = [pair for pair in every if "".join(pair).isascii()]
    scorer = RougeScorer(["rougeL"])
    outputs, references = zip(*every, strict=True)
    rows = [ScoredRow(0, output=output, references=(reference,)) for output, reference in every]
    ours, expected = chrf(chrf_totals(rows)), sacrebleu.corpus_chrf(list(outputs), [list(references)]).score
    lines.append(f"| chrf | sacrebleu | {len(every):,} | {abs(ours - expected):.1e} |")
    rouge = max(abs(rouge_l(a, b) - scorer.score(b, a)["rougeL"].fmeasure) for a, b in plain)
    lines.append(f"| rouge_l, ASCII | rouge_score | {len(plain):,} | {rouge:.1e} |")
    lines.append(f"| token_f1, ASCII | SQuAD | {len(plain):,} | {max(abs(token_f1(a, b) - squad_f1(a, b)) for a, b in plain):.1e} |")
    spaced = [pair for script, pairs in data.items() if script not in BLANKLESS for pair in pairs]
    differ = sum(abs(token_f1(a, b) - squad_f1(a, b)) > 1e-9 for a, b in spaced)
    lines.append(f"| token_f1, five scripts with blanks | SQuAD | {len(spaced):,} | {differ} pairs differ |")
    match = [(alike(a, b, {"case", "punctuation"}), lm_eval_match(a, b)) for a, b in plain]
    apart = sum(a != b for a, b in match)
    lines.append(f"| exact_match without case and punctuation, ASCII | lm-evaluation-harness | {len(plain):,} | {apart} pairs differ |")
    lines += [
        "",
        "Beyond ASCII, token_f1 also leaves out punctuation of Unicode, such as `،` and `।`, which SQuAD's script keeps.",
        "rouge_score drops all text that is not ASCII. There is nothing to compare with.",
        "The likelihoods of choices, `acc` and `acc_norm` are compared with transformers and with the formulas of lm-evaluation-harness in",
        "`tests/integration/scoring/test_score_with_engines.py`: 24 rows of three choices, 1e-4 of a log-likelihood, equal accuracies.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=500)
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks/answer_metrics.md"))
    arguments = parser.parse_args()
    arguments.out.write_text(page(arguments.pairs))


if __name__ == "__main__":
    main()
