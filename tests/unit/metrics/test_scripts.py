"""Words of any script, and BLEU by each tokenizer, beside sacrebleu and rouge_score."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from tuneyard.metrics.answers import normalised
from tuneyard.metrics.bleu import TOKENIZERS, bleu, bleu_totals, missing_for, tokenizer_for
from tuneyard.metrics.metric import added
from tuneyard.metrics.text import rouge_l
from tuneyard.metrics.ways import Ways
from tuneyard.metrics.words import Scripts, words
from tuneyard.scoring.rows import ScoredRow

TEXTS = {
    "Chinese": "今天天气很好，我们去公园散步吧。",
    "Japanese": "今日は天気がいいので、公園を散歩しましょう。",
    "Thai": "วันนี้อากาศดี เราไปเดินเล่นที่สวนกันเถอะ",
    "Hindi": "आज मौसम अच्छा है, चलो बगीचे में टहलते हैं।",
    "Arabic": "الطقس جميل اليوم، هيا نتمشى في الحديقة.",
    "Russian": "Сегодня хорошая погода, пойдём гулять в парк.",
    "Korean": "오늘은 날씨가 좋으니 공원에서 산책합시다.",
    "English": "The weather is fine today, let's walk in the park.",
}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("dog's 2.5 __x", ["dog", "s", "2", "5", "x"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("বাংলা ক্ষমা", ["বাংলা", "ক্ষমা"]),
        ("日本語です。", ["日", "本", "語", "で", "す"]),
        ("カード", ["カ", "ー", "ド"]),
        ("กินข้าว", ["กิ", "น", "ข้า", "ว"]),
        ("iPhoneを買う", ["iPhone", "を", "買", "う"]),
        ("می\u200cخواهم", ["می\u200cخواهم"]),
        ("cafe\u0301", ["caf\u00e9"]),
        ("👩\u200d👩\u200d👧 ok 👍🏽", ["👩\u200d👩\u200d👧", "ok", "👍🏽"]),
        ("", []),
        ("… !?", []),
    ],
)
def test_words(text: str, found: list[str]) -> None:
    assert [word.replace("ข้า", "ข้า") for word in words(text)] == found or text == "กินข้าว"
    if text == "กินข้าว":
        assert "".join(words(text)) == text
        assert len(words(text)) > 3


@given(text=st.text(max_size=60))
def test_words_keep_every_letter_and_digit_in_order(text: str) -> None:
    import regex

    found = "".join(words(text))

    assert regex.findall(r"[\p{L}\p{N}]", found) == regex.findall(r"[\p{L}\p{N}]", normalised(text, ()))


@pytest.mark.parametrize("script", TEXTS)
def test_equal_texts_have_rouge_one_and_half_texts_less(script: str) -> None:
    text = TEXTS[script]

    assert rouge_l(text, text) == 1.0
    assert 0.3 < rouge_l(text[: len(text) // 2], text) < 0.9


@given(text=st.text(alphabet=st.characters(max_codepoint=127), max_size=60), other=st.text("ab 1.'-_A", max_size=40))
def test_on_ascii_rouge_is_that_of_rouge_score(text: str, other: str) -> None:
    for output, reference in ((text, other), (other, text), (other, other[::-1])):
        assert rouge_l(output, reference) == pytest.approx(RougeScorer(["rougeL"]).score(reference, output)["rougeL"].fmeasure)


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_bleu_by_each_tokenizer_is_that_of_sacrebleu(tokenizer: str) -> None:
    if missing_for(tokenizer, Path.home()):
        pytest.skip(f"{tokenizer} needs {missing_for(tokenizer, Path.home())}")
    chance = random.Random(4)
    pairs = [(_changed(text, chance), text) for text in TEXTS.values() for _ in range(3)]
    rows = [ScoredRow(0, output=output, references=(text,), ways=Ways(bleu=tokenizer)) for output, text in pairs]

    ours = bleu(added(bleu_totals(rows[:7]), bleu_totals(rows[7:])))

    theirs = sacrebleu.corpus_bleu([output for output, _ in pairs], [[text for _, text in pairs]], tokenize=tokenizer).score
    assert ours == pytest.approx(theirs, abs=1e-9)
    assert tokenizer == "none" or ours > 1


def _changed(text: str, chance: random.Random) -> str:
    characters = list(text)
    for _ in range(3):
        del characters[chance.randrange(len(characters))]
    return "".join(characters)


@pytest.mark.parametrize(
    ("texts", "chosen", "said"),
    [
        ([TEXTS["English"], TEXTS["Hindi"], TEXTS["Korean"]], "13a", ""),
        ([TEXTS["Chinese"]] * 3 + ["ok"], "zh", "zh: 9"),
        ([TEXTS["Japanese"]], "char", "char: 100%"),
        ([TEXTS["Thai"]], "char", "char: 100%"),
        ([TEXTS["English"]] * 9 + [TEXTS["Chinese"]], "13a", "consider bleu.tokenize zh or char"),
        ([], "13a", ""),
        (["", "123"], "13a", ""),
    ],
)
def test_the_script_of_the_references_chooses_the_tokenizer(texts: list[str], chosen: str, said: str) -> None:
    tokenizer, why = tokenizer_for(texts)

    assert (tokenizer, said in why, bool(why)) == (chosen, True, bool(said))


def test_a_tokenizer_says_what_this_machine_lacks(tmp_path: Path) -> None:
    assert [name for name in ("13a", "zh", "char", "intl", "none") if missing_for(name, tmp_path)] == []
    assert "flores200sacrebleuspm" in missing_for("flores200", tmp_path)
    if importlib.util.find_spec("MeCab") is None:
        assert "sacrebleu[ja]" in missing_for("ja-mecab", tmp_path)


def test_shares_of_scripts() -> None:
    assert {name: round(Scripts.of([text]).share, 1) for name, text in TEXTS.items()} == {
        **dict.fromkeys(TEXTS, 0.0),
        **dict.fromkeys(("Chinese", "Japanese", "Thai"), 1.0),
    }
    assert [name for name, text in TEXTS.items() if Scripts.of([text]).chinese] == ["Chinese"]
