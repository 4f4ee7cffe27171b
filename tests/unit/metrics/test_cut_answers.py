"""The answer in a text: patterns, boxes, numbers, letters and values of JSON; and when two answers are alike."""

from __future__ import annotations

import re
import string
import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.metrics.answers import FORMS, TooSlow, alike, by_form, by_path, by_pattern, number_in, value_in
from tuneyard.metrics.text import token_f1


@pytest.mark.parametrize(
    ("pattern", "first", "last"),
    [
        (r"= (\d+)", "3", "4"),
        (r"(?i)the answer is (\w+)|= (\d+)", "3", "4"),
        (r"\d", "1", "4"),
        (r".*", "1 + 2 = 3", "2 + 2 = 4"),
        (r"(?m)^so (.*)$", None, None),
    ],
)
def test_a_pattern_takes_its_first_or_last_match_that_holds_a_text(pattern: str, first: str | None, last: str | None) -> None:
    text = "1 + 2 = 3\n2 + 2 = 4\n"

    assert (by_pattern(pattern, last=False)(text), by_pattern(pattern, last=True)(text)) == (first, last)


@pytest.mark.parametrize("pattern", [r"(a|aa)+$", r"([a-z]|[a-y])*\d", r"(\w|\w\w)*\d"])
def test_a_pattern_that_goes_back_for_ever_is_stopped(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuneyard.metrics.answers.cut.LIMIT_S", 0.1)
    began = time.monotonic()

    with pytest.raises(TooSlow, match=r"takes longer than 0\.1 s for a text of 61 characters"):
        by_pattern(pattern, last=True)("a" * 60 + "!")
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("pattern", ["(", "[a", "*", "(?P<a>x)(?P=b)", "a{2,1}"])
def test_a_bad_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="is no regular expression"):
        by_pattern(pattern, last=True)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{4}.", "4"),
        (r"\boxed{\frac{1}{2}} then \fbox{ x^{2} }", "x^{2}"),
        (r"\boxed 7.", "7"),
        (r"\boxed{a\}b}", r"a\}b"),
        (r"\boxed{1} and \boxed{2", "1"),
        (r"\boxed{}", None),
        ("boxed{4}", None),
    ],
)
def test_a_box_ends_with_its_own_brace(text: str, answer: str | None) -> None:
    assert by_form("boxed")(text) == answer


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1,000", "1000"),
        ("CHF 1'234'567.50", "1234567.5"),
        ("1’000", "1000"),
        ("it costs -$1,234.50!", "-1234.5"),
        ("about 1,00,000 rupees", "100000"),
        ("1\u202f000 km", "1000"),
        ("6e3", "6000"),
        (r"3 \times 10^{-2}", "0.03"),
        ("3/4 of it", "0.75"),
        (r"-\frac{2}{6}", "-1/3"),
        ("on 1/2/2024", "2024"),
        ("−2", "-2"),
        ("10-4", "4"),
        ("٣٫٥", "3.5"),
        ("３個", "3"),
        ("共4个", "4"),
        ("No.7.", "7"),
        ("007.50", "7.5"),
        ("-0", "0"),
        (".5", "0.5"),
        ("gpt4 says 5", "5"),
        ("1/0 or 3", "3"),
        ("9" * 5000, None),
        ("1e99999999999", None),
        ("none", None),
        ("", None),
        ("1.000.000", "1000000"),
        ("1.234,56", "1234.56"),
        ("-1.234.567,8", "-1234567.8"),
        ("1.234", "1.234"),
        ("3 1/2", "3.5"),
        ("v1.2.3", None),
        ("on 12.05.2024", None),
        ("12, by version 1.2.3", "12"),
    ],
)
def test_numbers_have_one_form(text: str, number: str | None) -> None:
    assert number_in(text) == number


@given(value=st.fractions(max_denominator=10**6))
def test_a_number_that_was_written_is_read_again(value: Fraction) -> None:
    for written in (f"{value.numerator}/{value.denominator}", number_in(f"{value.numerator}/{value.denominator}") or ""):
        assert value_in(f"it is {written}, I think") == value


@given(value=st.integers(-(10**12), 10**12), places=st.integers(0, 4))
def test_separators_and_zeros_do_not_change_a_number(value: int, places: int) -> None:
    assert number_in(f"{value:,}.{'0' * places}" if places else f"{value:,}") == str(value)


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("B", "B"),
        (" (b). ", "B"),
        ("The answer is (C).", "C"),
        ("Answer: **D**", "D"),
        ("The correct answer is B because A is wrong", "B"),
        ("A) Paris", "A"),
        ("B. It is", "B"),
        ("First A, then B.\nC", "C"),
        ("It must be (A), or no: (B)", "B"),
        (r"Hence $\boxed{\text{C}}$", "C"),
        ("答案是B", "B"),
        ("정답은 C", "C"),
        ("Ответ: D", "D"),
        ("Answer: I think so", None),
        ("A dog", None),
        ("", None),
        ("Paris", None),
    ],
)
def test_the_letter_of_a_choice(text: str, letter: str | None) -> None:
    assert by_form("choice")(text) == letter


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": {"b": [1, {"c": "yes"}]}}', "yes"),
        ('Sure:\n```json\n{"a": {"b": [{"c": 4}]}}\n```\nDone.', "4"),
        ('First {"a": {"b": [{"c": 1}]}} then {"a": {"b": [{"c": true}]}}.', "true"),
        ('{"a": {"b": [{"c": {"y": 1, "x": [2]}}]}}', '{"x":[2],"y":1}'),
        ('{"a": {"b": [{"c": null}]}}', None),
        ('{"a": {"b": []}}', None),
        ('{"a": "b"}', None),
        ("[" * 100_000, None),
        ('{"a": ' * 30_000, None),
    ],
)
def test_a_value_of_json(text: str, value: str | None) -> None:
    assert by_path("a.b[-1].c")(text) == value


@pytest.mark.parametrize("path", ["", ".", "a..b", "a[", "a.[0]", "a[x]", "[1"])
def test_a_bad_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="is no path of JSON"):
        by_path(path)


@pytest.mark.parametrize("form", FORMS)
@given(text=st.text(max_size=60))
def test_any_text_has_an_answer_without_white_space_around_it_or_none(form: str, text: str) -> None:
    answer = by_form(form)(text)

    assert answer is None or (answer and answer == answer.strip())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("piece", ["answer is ", r"\boxed{", "1,", "(A", "{", "```\n", "\\frac{1}", "答案", "-", "9", " "])
def test_100_kilobytes_take_no_time(form: str, piece: str) -> None:
    began = time.process_time()

    by_form(form)(piece * (100_000 // len(piece)))

    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("output", "reference", "ignore", "same"),
    [
        ("Paris.", "paris", {"case", "punctuation"}, True),
        ("Paris.", "paris", {"case"}, False),
        ("1,000", "1000", {"punctuation"}, True),
        ("-4", "4", {"punctuation"}, False),
        ("1.5", "15", {"punctuation"}, False),
        ("well-known", "wellknown", {"punctuation"}, True),
        ("「東京」", "東京", {"punctuation"}, True),
        ("the Cat", "Cat", {"articles"}, True),
        ("The", "A", {"articles"}, False),
        ("...", "!?", {"punctuation"}, False),
        ("New  York", "NewYork", {"whitespace"}, True),
        ("Straße", "STRASSE", {"case"}, True),
        ("cafe\u0301", "caf\u00e9", set(), True),
    ],
)
def test_what_is_ignored_makes_answers_alike(output: str, reference: str, ignore: set[str], same: bool) -> None:
    assert alike(output, reference, ignore) == same


# --- as others define it ----------------------------------------------------------------------------------------------------------

WORDS = st.lists(st.sampled_from(["The", "a", "cat", "sat,", "An", "mat.", "dog's", "2", "U.S.", "x-y", "!"]), max_size=12).map(" ".join)


def squad_f1(prediction: str, truth: str) -> float:
    """The F1 of the evaluation script of SQuAD 2.0, from its definition: bags of normalised words; 1 if both have none."""

    def tokens(text: str) -> list[str]:
        text = "".join(each for each in text.lower() if each not in set(string.punctuation))
        return re.sub(r"\b(a|an|the)\b", " ", text).split()

    ours, expected = tokens(prediction), tokens(truth)
    if not ours or not expected:
        return float(ours == expected)
    same = sum(min(ours.count(word), expected.count(word)) for word in set(ours))
    if not same:
        return 0.0
    precision, recall = same / len(ours), same / len(expected)
    return 2 * precision * recall / (precision + recall)


@given(output=WORDS, reference=WORDS)
def test_the_f1_of_words_is_that_of_squad(output: str, reference: str) -> None:
    assert token_f1(output, reference) == pytest.approx(squad_f1(output, reference))


def test_the_f1_of_words_knows_scripts_without_blanks() -> None:
    assert token_f1("東京都", "東京") == pytest.approx(0.8)
    assert token_f1("กรุงเทพ", "กรุงเทพ") == 1.0
    assert token_f1("हिन्दी भाषा", "हिन्दी") == pytest.approx(2 / 3)


def lm_eval_exact_match(prediction: str, reference: str, ignore: set[str]) -> bool:
    """`exact_match_hf_evaluate` of lm-evaluation-harness, from its definition; it knows neither articles nor Unicode."""
    texts = [prediction, reference]
    if "case" in ignore:
        texts = [text.lower() for text in texts]
    if "punctuation" in ignore:
        texts = [text.translate(str.maketrans("", "", string.punctuation)) for text in texts]
    return texts[0] == texts[1]


@given(output=WORDS, reference=WORDS, ignore=st.sets(st.sampled_from(["case", "punctuation"])))
def test_on_words_exact_match_is_that_of_lm_evaluation_harness(output: str, reference: str, ignore: set[str]) -> None:
    theirs = lm_eval_exact_match(output, reference, ignore)

    if theirs:  # white space and texts of nothing but punctuation are where the two differ
        assert alike(output, reference, ignore) or not re.search(r"\w", output)
    elif output.split() and reference.split():
        normal = [" ".join("".join(each for each in text if each not in string.punctuation).split()) for text in (output, reference)]
        assert not alike(output, reference, ignore) or normal[0].lower() == normal[1].lower()
