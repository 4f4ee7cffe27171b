"""Tokens of one pass are those of the rule: tokenise the text whole, tokenise apart what a token would join with an answer, and
count what overlaps an answer. Here the rule is written down once more, over the offsets of all tokens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from tests.builders.templates import ALL, Template
from tests.builders.tokenizer_kinds import KINDS, of_kind
from tokenizers import AddedToken

from tuneyard.api import BadInput
from tuneyard.data.borders import with_exact_offsets
from tuneyard.data.chat import choose_template, render
from tuneyard.data.messages import BadSample
from tuneyard.data.one_pass import one_pass
from tuneyard.data.roles import Chat, Completion, Text
from tuneyard.data.samples import Placed
from tuneyard.data.token_spans import Range
from tuneyard.data.tokens import IGNORED, Encoder
from tuneyard.data.walls import walls_of

NOT_IN_ONE_PASS = {
    *("gpt-2, blank before", "metaspace, first", "metaspace, always", "metaspace, never", "llama-2"),  # put blanks before texts, or might
    "wordpiece",  # its normalizer takes characters away
}
ATOMS = [
    *("<|end|>", "<|user|>", "<think>", "</think>", "<mask>", "|>x", "ab", "<|en", "<", "\n", "\n\n", " ", "  ", "    ", "\t", "\r\n"),
    *("the", " the", "cat", "'s", "'ll", "'", "12345", "1", "A:", " A: ", "!", "?!", "é", "e", "\u0301", "\u0338", "=", "你好", "नमस्ते"),
    *("한", "\u1112", "\u1161", "🙂", "x", "return", "\u00a0", "\u200b", "\x85", "\u0344", "\u0f73", "\u3000", "_", "Ab", "ſ", "\u2028"),
]
OPENINGS = [
    *("assistant\n", "\n", "\n\n", " ", "A: ", "", "é", "12", "assistant\n<think>\n\n</think>\n\n", "x", " \n", "  ", "it'", "=", "e"),
    *("\t", "assistant", "\r\n", "ab", "!", "한", "\u1112"),
]


def by_the_rule(tokenizer: Any, text: str, spans: Sequence[Range]) -> tuple[list[int], list[int]]:
    """Tokens, and labels as of `Encoder`, before the first token loses its own."""
    exact = with_exact_offsets(tokenizer)

    def tokens(start: int, end: int) -> list[tuple[int, int, int]]:
        found = exact(text[start:end], add_special_tokens=False, return_offsets_mapping=True)
        return [(token, start + a, start + b) for token, (a, b) in zip(found["input_ids"], found["offset_mapping"], strict=True)]

    whole = tokens(0, len(text))
    cuts = {start for start, _ in spans if any(a < start < b for _, a, b in whole)}
    borders = sorted({0, len(text), *cuts})
    if cuts:
        whole = [token for start, end in pairwise(borders) for token in tokens(start, end)]
    counts = [a < b and any(b > start and a < end for start, end in spans) for _, a, b in whole]
    return [token for token, *_ in whole], [t if c else IGNORED for (t, *_), c in zip(whole, counts, strict=True)]


def random_chat(random: Random) -> tuple[str, list[Range]]:
    """A text of up to three turns, with spans of which some begin or end where they seldom do."""
    text, spans = "", []

    def anything(most: int) -> str:
        return "".join(random.choice(ATOMS) for _ in range(random.randint(0, most)))

    for _ in range(random.randint(1, 3)):
        text += "<|user|>" + anything(4) + random.choice(["<|assistant|>", "<|assistant|>", "<think>", "\n", "<mask>"])
        text += random.choice(OPENINGS) if random.random() < 0.8 else anything(3)
        start, answer = len(text), random.choice(ATOMS) + anything(6)
        text += answer
        if random.random() < 0.15:
            middle = start + random.randint(1, len(answer))
            spans.append((start, middle))
            start = middle
        text += random.choice(["<|end|>", "<|end|>", "</think>", "\n", ""])
        if start < len(text):
            spans.append((start, len(text)))
        text += random.choice(["\n", "", "", " "])
    if random.random() < 0.05:
        spans = [(max(0, start - 1), end) for start, end in spans]
    return text, spans


@pytest.mark.parametrize("overlapping", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_random_texts(kind: str, overlapping: bool) -> None:
    tokenizer = of_kind(kind, overlapping=overlapping)
    way = one_pass(tokenizer)
    assert (way is None) == (kind in NOT_IN_ONE_PASS)
    if way is None:
        return
    random = Random(f"{kind}{overlapping}")
    chats = [random_chat(random) for _ in range(400)]
    found = [(tokens, chat) for tokens, chat in zip(way.encode(chats), chats, strict=True) if tokens is not None]
    assert len(found) > (4 if overlapping else 50)
    for tokens, (text, spans) in found:
        counted = {place for start, end in tokens.counted for place in range(start, end)}
        labels = [token if place in counted else IGNORED for place, token in enumerate(tokens.ids)]
        assert (tokens.ids, labels) == by_the_rule(tokenizer, text, spans), (text, spans)


def turns(*contents: str, **more: Any) -> list[dict[str, Any]]:
    names = ("user", "assistant") * len(contents)
    messages: list[dict[str, Any]] = [{"role": name, "content": content} for name, content in zip(names, contents, strict=False)]
    messages[-1].update(more)
    return messages


CHATS = [
    turns("the cat", "sat on a mat"),
    turns("write it", "    return x  + 1\n"),
    turns("the cat", "\n\n  sat", "and then", " the end "),
    turns("état", "e\u0301tat 你好 🙂"),
    turns("<think>no</think>", "yes<|end|>no", "12", "345"),
    turns("the cat", "sat", reasoning_content="one dog"),
    turns("the cat", "<think>one dog</think>sat"),
    turns("first", "left", "second", "learned", weight=0),
    [{"role": "system", "content": " be brief "}, *turns("the  cat", "'s mat")],
    [{"role": "assistant", "content": "it begins"}, *turns("so", "it ends")],
]
MOSTLY_BY_OFFSETS = {"template_basic", "template_blip2", "template_deepseek_ocr", "end_as_text", "no_prompt", "no_end", "end_always"}
MOSTLY_BY_OFFSETS |= {"idefics3", "smolvlm"}  # an answer that others follow ends with a line break, and a plain "User:" comes next
"""Templates that put plain text around answers."""


@pytest.mark.parametrize("template", ALL, ids=str)
def test_chats_under_each_template(template: Template) -> None:
    tokenizer = template.tokenizer()
    chosen = choose_template(tokenizer, None)
    encoder = Encoder(tokenizer, "assistant", 4096, "truncate", chosen)
    rendered = []
    for messages in CHATS:
        try:
            whole = encoder._with_ends(render(Chat(messages), chosen, tokenizer.special_tokens_map, need_spans=True))
            encoded = encoder.encode([Placed("row 1", Chat(messages))])
        except (BadSample, BadInput):
            continue
        rendered.append((whole.text, whole.spans))
        ids, labels = by_the_rule(tokenizer, whole.text, whole.spans)
        labels[:1] = [IGNORED]
        assert [found.tolist() for found in (*encoded.ids, *encoded.labels)] == ([ids, labels] if set(labels) != {IGNORED} else [])
    way = one_pass(tokenizer)
    assert way is not None
    if template.name not in MOSTLY_BY_OFFSETS:
        assert sum(tokens is None for tokens in way.encode(rendered)) <= len(rendered) // 5


@pytest.mark.parametrize("kind", KINDS)
def test_texts_and_pairs_have_the_tokens_of_the_tokenizer(kind: str) -> None:
    tokenizer = of_kind(kind)
    tokenizer(["left behind"], truncation=True, max_length=2, padding="max_length" if tokenizer.pad_token else False)
    encoder = Encoder(tokenizer, "completion", 512, "truncate")
    encoded = encoder.encode([Placed("1", Text("the cat\n  sat")), Placed("2", Completion("the cat<|end|>", "<think> yes"))])
    ids = {sample: found.tolist() for sample, found in zip(("pair", "text"), encoded.ids, strict=True)}
    assert ids["text"] == [*tokenizer("the cat\n  sat")["input_ids"], tokenizer.eos_token_id]
    assert ids["pair"][: len(tokenizer("the cat<|end|>")["input_ids"])] == tokenizer("the cat<|end|>")["input_ids"]


def test_a_tokenizer_that_draws_lots_or_reads_special_tokens_as_text_is_left_to_offsets() -> None:
    from transformers import PreTrainedTokenizerFast

    rules = json.loads(of_kind("gpt-2").backend_tokenizer.to_str())
    rules["model"]["dropout"] = 0.1
    random = PreTrainedTokenizerFast(tokenizer_object=type(of_kind("gpt-2").backend_tokenizer).from_str(json.dumps(rules)))
    assert one_pass(random) is None
    reads = PreTrainedTokenizerFast(tokenizer_object=of_kind("gpt-2").backend_tokenizer, split_special_tokens=True)
    assert one_pass(reads) is None


def test_walls_stand_alone() -> None:
    contents = ["<|end|>", "<|endless|>", "|>x", "aa", "<b>", "<b><b>", "[A]", "[AB]", "word"]
    walls = walls_of(
        [*(AddedToken(content, normalized=False) for content in contents), AddedToken("ab", single_word=True)], normalises=False
    )
    assert walls is not None
    assert {content for content in contents if walls.walls.fullmatch(content)} == {"[A]", "[AB]"}  # all others share an end with another
    assert walls.before("x[A]yy", 6, 2) == 4
    assert walls.before("x[A]yyy", 7, 2) is None
    assert walls.before("x[A]", 2, 64) is None, "a place inside of a wall has none before it"
    assert (walls.at("x[AB]", 1), walls.at("x[AB]", 5), walls.at("x[AB]y", 2)) == (True, True, False)
    assert walls_of([], normalises=False) is None
