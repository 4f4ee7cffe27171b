"""Rows for tasks of lm-evaluation-harness."""

from __future__ import annotations

from pathlib import Path


def likely_continuations(model: Path, texts: list[str], otherwise: str = " dog") -> list[str]:
    """For every other text what the model says next, where its token survives text; else `otherwise`. So some continuations are greedy."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, llm = AutoTokenizer.from_pretrained(model), AutoModelForCausalLM.from_pretrained(model)
    found = []
    for place, text in enumerate(texts):
        ids = tokenizer.encode(text)
        next_token = int(llm(tokenizer(text, return_tensors="pt").input_ids).logits[0, -1].argmax())
        said = tokenizer.decode([next_token])
        found.append(said if place % 2 == 0 and tokenizer.encode(text + said) == [*ids, next_token] else otherwise)
    return found
