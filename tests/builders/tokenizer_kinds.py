"""Small tokenizers of the kinds that models come with: how they normalise, split and merge, trained here on text with blanks, code and
letters of several scripts."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

SPECIAL = ["<|end|>", "<|user|>", "<|assistant|>", "<|sep|>"]
THINK = ["<think>", "</think>"]
_LLAMA_3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN_2 = _LLAMA_3.replace("{1,3}", "")
_QWEN_3_5 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LEARNED = [
    "def f(x):\n        return x + 1\n\n\n    print('it''s')  \n",
    "assistant\n\nthe cat's mat, 12345 dogs; we'll see\n assistant\n    the",
    "user: Q: A: the the  the   the\t\tthe !!! ?!\n!!\n\nA: yes. A: no A:12 A: 12",
    "état é ñandú über 你好世界 こんにちは привет мир नमस्ते 한국어 🙂🙂",
] * 40


def _fast(backend: Tokenizer, bos: str | None = None) -> PreTrainedTokenizerFast:
    backend.add_tokens([AddedToken(text, normalized=False) for text in THINK])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>", bos_token=bos)


def _bytes(splits: list[Any], *, normalizer: Any = None, trim: bool = False, ignore_merges: bool = False) -> Any:
    backend = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizers.Sequence(splits) if len(splits) > 1 else splits[0]
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        _LEARNED, trainers.BpeTrainer(vocab_size=600, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False)
    )
    backend.post_processor = processors.ByteLevel(trim_offsets=trim)
    return _fast(backend)


def _split(pattern: str) -> Any:
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def _pieces(model: Any, trainer: Any, *, normalizer: Any = None, pre_tokenizer: Any = None) -> Any:
    backend = Tokenizer(model)
    if normalizer is not None:
        backend.normalizer = normalizer
    if pre_tokenizer is not None:
        backend.pre_tokenizer = pre_tokenizer
    backend.train_from_iterator(_LEARNED, trainer)
    return _fast(backend)


def _merges(size: int = 400) -> Any:
    return trainers.BpeTrainer(vocab_size=size, special_tokens=["<unk>", *SPECIAL], show_progress=False)


_WORDS = pre_tokenizers.ByteLevel(add_prefix_space=False)
_RAW = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
KINDS: dict[str, Callable[[], Any]] = {
    "gpt-2": lambda: _bytes([_WORDS]),
    "gpt-2, trimmed": lambda: _bytes([_WORDS], trim=True),
    "llama-3": lambda: _bytes([_split(_LLAMA_3), _RAW], ignore_merges=True),
    "qwen-2": lambda: _bytes([_split(_QWEN_2), _RAW], normalizer=normalizers.NFC()),
    "qwen-3.5": lambda: _bytes([_split(_QWEN_3_5), _RAW], normalizer=normalizers.NFC()),
    "digits": lambda: _bytes([pre_tokenizers.Digits(individual_digits=True), _WORDS]),
    "numbers": lambda: _bytes([_split(r"\p{N}{1,2}"), _WORDS]),
    "unknown pattern": lambda: _bytes([_split(r"[^\n]*x|\S+|\s+"), _RAW]),
    "no pattern": lambda: _bytes([_RAW]),
    "gpt-2, blank before": lambda: _bytes([pre_tokenizers.ByteLevel(add_prefix_space=True)]),
    "gemma": lambda: _pieces(
        models.BPE(unk_token="<unk>", fuse_unk=True),
        _merges(),
        normalizer=normalizers.Replace(" ", "▁"),
        pre_tokenizer=pre_tokenizers.Split(" ", "merged_with_previous"),
    ),
    "gemma, nothing split": lambda: _pieces(models.BPE(unk_token="<unk>"), _merges(), normalizer=normalizers.Replace(" ", "▁")),
    "metaspace, first": lambda: _pieces(
        models.BPE(unk_token="<unk>"), _merges(), pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="first")
    ),
    "metaspace, always": lambda: _pieces(
        models.Unigram(),
        trainers.UnigramTrainer(vocab_size=300, special_tokens=["<unk>", *SPECIAL], unk_token="<unk>", show_progress=False),
        pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="always"),
    ),
    "metaspace, never": lambda: _pieces(
        models.BPE(unk_token="<unk>"), _merges(), pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="never")
    ),
    "llama-2": lambda: _pieces(
        models.BPE(unk_token="<unk>"),
        _merges(),
        normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
    ),
    "unigram": lambda: _pieces(
        models.Unigram(),
        trainers.UnigramTrainer(vocab_size=300, special_tokens=["<unk>", *SPECIAL], unk_token="<unk>", show_progress=False),
        pre_tokenizer=pre_tokenizers.UnicodeScripts(),
    ),
    "wordpiece": lambda: _pieces(
        models.WordPiece(unk_token="<unk>"),
        trainers.WordPieceTrainer(vocab_size=400, special_tokens=["<unk>", *SPECIAL], show_progress=False),
        normalizer=normalizers.BertNormalizer(lowercase=True),
        pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
    ),
    "wordpiece, cased": lambda: _pieces(
        models.WordPiece(unk_token="<unk>"),
        trainers.WordPieceTrainer(vocab_size=400, special_tokens=["<unk>", *SPECIAL], show_progress=False),
        pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
    ),
}


@cache
def of_kind(kind: str, *, overlapping: bool = False) -> Any:
    """The tokenizer, with an added token that takes the blanks around it, and one that wants to be a word. `overlapping`: one that begins
    as the special ones end, too."""
    tokenizer = KINDS[kind]()
    more = [AddedToken("<mask>", lstrip=True, rstrip=True, normalized=False), AddedToken("ab", single_word=True)]
    tokenizer.add_tokens([*more, AddedToken("|>x", normalized=False)] if overlapping else more)
    return tokenizer
