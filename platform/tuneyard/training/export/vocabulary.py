"""The vocabulary of a tokenizer in the form of GGUF.

llama.cpp has code of its own for each kind of tokenizer, and names them. Two kinds are known here: byte-level BPE (GPT-2, Llama 3, Qwen),
and BPE with bytes as a fallback, which stands for SentencePiece (Llama 2, Mistral, Gemma). Each export compares the tokens of some texts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tuneyard.api import BadInput

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Types of tokens in GGUF."""
_ADVICE = "write a model folder (tuneyard export --format merged): vLLM and transformers read its tokenizer"
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPLITS: dict[tuple[str, ...], str] = {
    ("bytes",): "gpt-2",
    ("digits", "bytes"): "smollm",
    (_WORDS % r"\p{N}{1,3}",): "llama-bpe",
    (_WORDS % r"\p{N}",): "qwen2",
}
"""How text is split before BPE -> llama.cpp's name for it. `bytes`: GPT-2's own expression; `digits`: each digit alone."""
_MERGES_WHOLE_WORDS = {"llama-bpe"}
"""Names under which llama.cpp takes a word that is a token as it is, without merges (`ignore_merges`)."""


@dataclass(frozen=True)
class Vocabulary:
    """`tokens`, `types` and `scores` are of one length, that of the embedding. `scores` is empty for byte-level BPE, `merges` for the other
    kind. `special`: name in GGUF -> token.
    """

    model: str
    pre: str
    tokens: list[str]
    types: list[int]
    scores: list[float] = field(default_factory=list)
    merges: list[str] = field(default_factory=list)
    special: dict[str, int] = field(default_factory=dict)
    adds_bos: bool = False
    adds_eos: bool = False
    adds_space: bool = False


def vocabulary_of(tokenizer: Any, rows: int, ends: list[int]) -> Vocabulary:
    """The vocabulary of a tokenizer of transformers. `rows`: of the embedding. `ends`: tokens that end an answer, the first one first.

    Raises BadInput for kinds of tokenizers that llama.cpp would read otherwise.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise BadInput(f"{type(tokenizer).__name__} has no tokenizer.json, and cannot be exported as GGUF", _ADVICE)
    told = json.loads(backend.to_str())
    model = told["model"]
    if model["type"] != "BPE":
        raise BadInput(f"a tokenizer of kind {model['type']} cannot be exported as GGUF yet: BPE can", _ADVICE)
    last = max([*model["vocab"].values(), *(token["id"] for token in told["added_tokens"])])
    if last >= rows:
        raise BadInput(f"the tokenizer has a token {last}, and the embedding {rows} rows", "save model and tokenizer again")
    by_bytes = bool(model.get("byte_fallback"))
    tokens, types = _tokens(model["vocab"], told["added_tokens"], rows, by_bytes)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    special = {"bos": bos, "eos": ends[0] if ends else eos, "unk": tokenizer.unk_token_id, "pad": tokenizer.pad_token_id}
    if len(ends) > 1:
        special["eot"] = ends[1]
    alone = tokenizer.encode("a")
    how: dict[str, Any] = {
        "special": {name: token for name, token in special.items() if token is not None},
        "adds_bos": _begins_with_bos(tokenizer, alone, bos),
        "adds_eos": bool(alone) and eos is not None and alone[-1] == eos,
    }
    if by_bytes:
        if tokenizer.unk_token_id is not None:
            types[tokenizer.unk_token_id] = UNKNOWN
        return Vocabulary("llama", "default", tokens, types, scores=_scores(tokens, merges), adds_space=_adds_space(told), **how)
    return Vocabulary("gpt2", _pre(told), tokens, types, merges=merges, **how)


def _tokens(vocabulary: dict[str, int], added: list[dict[str, Any]], rows: int, by_bytes: bool) -> tuple[list[str], list[int]]:
    tokens, types = [f"[PAD{index}]" for index in range(rows)], [UNUSED] * rows
    for text, index in vocabulary.items():
        tokens[index], types[index] = text, BYTE if by_bytes and _is_byte(text) else NORMAL
    for token in added:
        tokens[token["id"]] = token["content"]
        types[token["id"]] = CONTROL if token["special"] else USER_DEFINED
    return tokens, types


def _is_byte(text: str) -> bool:
    return len(text) == 6 and text.startswith("<0x") and text.endswith(">")


def _scores(tokens: list[str], merges: list[str]) -> list[float]:
    """SentencePiece joins the two neighbors whose whole has the best score, and BPE those of the first merge: a score is minus the place of
    the first merge that makes the token.
    """
    places: dict[str, int] = {}
    for place, merge in enumerate(merges):
        places.setdefault(merge.replace(" ", ""), place)
    return [-float(places.get(token, 0)) for token in tokens]


def _begins_with_bos(tokenizer: Any, alone: list[int], bos: int | None) -> bool:
    """Whether llama.cpp puts the first token before a prompt. Prompts of a model with a chat template are what its template writes."""
    if bos is None:
        return False
    if tokenizer.chat_template is None:
        return bool(alone) and alone[0] == bos
    said = tokenizer.apply_chat_template([{"role": "user", "content": "a"}], tokenize=False, add_generation_prompt=True)
    return str(said).startswith(tokenizer.bos_token)


def _adds_space(told: dict[str, Any]) -> bool:
    """Whether a space is put before the first word."""
    steps = [*_steps(told.get("normalizer"), "normalizers"), *_steps(told.get("pre_tokenizer"), "pretokenizers")]
    return any(step["type"] == "Prepend" or step.get("prepend_scheme") in ("always", "first") for step in steps)


def _pre(told: dict[str, Any]) -> str:
    """llama.cpp's name for the way in which a byte-level tokenizer splits text."""
    splits = []
    for step in _steps(told.get("pre_tokenizer"), "pretokenizers"):
        if step["type"] == "Split" and step["behavior"] == "Isolated" and not step["invert"]:
            splits.append(step["pattern"].get("Regex", ""))
        elif step["type"] == "Digits" and step["individual_digits"]:
            splits.append("digits")
        elif step["type"] == "ByteLevel" and not step["add_prefix_space"]:
            splits += ["bytes"] if step["use_regex"] else []
        else:
            splits.append(step["type"])
    name = SPLITS.get(tuple(splits))
    if name is None:
        raise BadInput(f"llama.cpp has no name here for a tokenizer that splits text by {' and '.join(splits) or 'nothing'}", _ADVICE)
    if bool(told["model"].get("ignore_merges")) != (name in _MERGES_WHOLE_WORDS):
        raise BadInput(f"this tokenizer splits text as {name}, and merges tokens otherwise (ignore_merges)", _ADVICE)
    return name


def _steps(told: dict[str, Any] | None, many: str) -> list[dict[str, Any]]:
    if told is None:
        return []
    return list(told[many]) if told["type"] == "Sequence" else [told]
