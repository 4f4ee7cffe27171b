"""Tokens at the border of a prompt and an answer, for tokenizers that trim offsets and for those that put blanks before texts."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from tuneyard.data.borders import continued_tokens, with_exact_offsets
from tuneyard.data.chat import ChatTemplate
from tuneyard.data.roles import Chat, Completion
from tuneyard.data.samples import Placed
from tuneyard.data.tokens import IGNORED, Encoder

SPECIAL = ["<|end|>", "<|user|>", "<|assistant|>"]
TEXTS = ["def f(x):\n        return x + 1\n", "the cat sat on a mat", "question: answer", "Q: the question A: yes"] * 50
CHAT = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
LABELLED = (
    "{% for m in messages %}{{ ('Q: ' if m['role'] == 'user' else 'A: ') + m['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'A: ' }}{% endif %}"
)
LLAMA_3_SPLIT = Regex(r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_level(*, trim: bool, template: str) -> PreTrainedTokenizerFast:
    """As Llama 3's, but for its size: `trim` is what its post-processor does."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(LLAMA_3_SPLIT, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet))
    backend.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=trim)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>", chat_template=template)


def metaspace(scheme: str, template: str = LABELLED) -> PreTrainedTokenizerFast:
    """As of models in the manner of sentencepiece; `scheme`: to which texts it puts a blank."""
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    backend.decoder = decoders.Metaspace(prepend_scheme=scheme)
    backend.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>", *SPECIAL]))
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>", chat_template=template)


def encoded(tokenizer: Any, sample: Any, loss: Any = "assistant") -> tuple[list[int], list[int]]:
    template = ChatTemplate(str(tokenizer.chat_template), "the test's", False, False)
    found = Encoder(tokenizer, loss, 512, "truncate", template).encode([Placed("row 1", sample)])
    assert not found.bad
    return found.ids[0].tolist(), [token for token in found.labels[0].tolist() if token != IGNORED]


def chat(question: str, answer: str) -> Chat:
    return Chat([{"role": "user", "content": question}, {"role": "assistant", "content": answer}])


@pytest.mark.parametrize("trim", [False, True])
def test_blanks_of_an_answer_are_learned_whether_offsets_are_trimmed_or_not(trim: bool) -> None:
    tokenizer = byte_level(trim=trim, template=CHAT)
    code = "def f(x):\n        return x  + 1"
    ids, learned = encoded(tokenizer, chat("write it", code))
    assert tokenizer.decode(learned) == f"{code}<|end|>"
    assert tokenizer.decode(ids) == f"<|user|>write it<|end|><|assistant|>{code}<|end|>"


@pytest.mark.parametrize("trim", [False, True])
def test_no_token_joins_prompt_and_answer(trim: bool) -> None:
    tokenizer = byte_level(trim=trim, template=LABELLED)
    prompt = tokenizer("Q: question<|end|>A: ", add_special_tokens=False)["input_ids"]
    ids, learned = encoded(tokenizer, chat("question", "the cat"))
    assert ids[: len(prompt)] == prompt
    assert tokenizer.decode(learned) == "the cat<|end|>"


@pytest.mark.parametrize("scheme", ["first", "always", "never"])
def test_an_answer_that_goes_on_gets_no_blank_of_its_own(scheme: str) -> None:
    tokenizer = metaspace(scheme)
    prompt = tokenizer("Q: the question<|end|>A: ", add_special_tokens=False)["input_ids"]
    ids, learned = encoded(tokenizer, chat("the question", "the cat"))
    assert ids == [*prompt, *learned]
    assert tokenizer.decode(ids).replace(" ", "") == "Q:thequestion<|end|>A:thecat<|end|>"
    assert "  " not in tokenizer.decode(ids)
    whole, completion = encoded(tokenizer, Completion("the retu", "rn x"), "completion")
    assert tokenizer.decode(whole) == "the return x<|end|>"
    assert tokenizer.decode(completion).replace(" ", "") == "rnx<|end|>"


def test_exact_offsets_are_those_of_the_text() -> None:
    trimmed = byte_level(trim=True, template=CHAT)
    exact = with_exact_offsets(trimmed)
    text = "a   b\n    return"
    found = exact(text, add_special_tokens=False, return_offsets_mapping=True)
    assert "".join(text[start:end] for start, end in found["offset_mapping"]) == text
    assert found["input_ids"] == trimmed(text, add_special_tokens=False)["input_ids"]
    untrimmed = byte_level(trim=False, template=CHAT)
    assert with_exact_offsets(untrimmed) is untrimmed
    assert list(continued_tokens(exact, [], offsets=True)) == []


def test_an_end_token_in_a_prompt_is_not_learned() -> None:
    tokenizer = byte_level(trim=False, template=CHAT)
    ids, learned = encoded(tokenizer, Completion("the cat<|end|>", " sat"), "completion")
    assert tokenizer.decode(ids) == "the cat<|end|> sat<|end|>"
    assert tokenizer.decode(learned) == " sat<|end|>"
