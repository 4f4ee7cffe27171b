"""A model in this process answers as its own logits say, with the adapter that belongs on it, by the prompts of its training."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.builders.models import CHAT_TEMPLATE, write_adapter, write_model
from transformers import AddedToken, AutoModelForCausalLM, AutoTokenizer

from tuneyard.api import BadInput
from tuneyard.scoring.generation import Generator

PROMPT = "the cat sat"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def adapter(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_adapter(tmp_path_factory.mktemp("adapter"), model)


def greedy(model: Path, ids: list[int], steps: int) -> list[int]:
    """The likeliest tokens, one forward pass each."""
    weights = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    for _ in range(steps):
        with torch.no_grad():
            ids = [*ids, int(weights(torch.tensor([ids])).logits[0, -1].argmax())]
    return ids[-steps:]


@pytest.mark.parametrize("chat", [False, True])
def test_an_answer_is_the_likeliest_tokens_after_the_rendered_prompt(model: Path, chat: bool) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model)
    text = f"<|user|>{PROMPT}<|end|><|assistant|>" if chat else PROMPT
    expected = greedy(model, tokenizer(text)["input_ids"], 8)
    pieces: list[str] = []

    answer = Generator(str(model), None, chat=chat).answer(PROMPT, pieces.append, max_tokens=8)

    until_end = expected[: expected.index(tokenizer.eos_token_id)] if tokenizer.eos_token_id in expected else expected
    assert answer == tokenizer.decode(until_end, skip_special_tokens=True)
    assert "".join(pieces) == answer


def test_any_of_the_model_s_end_tokens_ends_an_answer(model: Path, tmp_path: Path) -> None:
    tokenizer, weights = AutoTokenizer.from_pretrained(model), AutoModelForCausalLM.from_pretrained(model)
    first = greedy(model, tokenizer(PROMPT)["input_ids"], 1)[0]
    others = [token for token in range(len(tokenizer)) if token != first][:2]
    weights.generation_config.eos_token_id = [*others, first]
    weights.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)

    assert Generator(str(tmp_path), None, chat=False).answer(PROMPT, len, max_tokens=8) == ""


def test_an_adapter_changes_the_answer(model: Path, adapter: Path) -> None:
    plain = Generator(str(model), None, chat=False).answer(PROMPT, len, max_tokens=8)
    generator = Generator(str(model), str(adapter), chat=False)

    adapted = generator.answer(PROMPT, len, max_tokens=8)

    assert plain != adapted
    assert generator.answer(PROMPT, len, max_tokens=8, adapted=False) == plain, "an adapter can be switched off"
    assert generator.answer(PROMPT, len, max_tokens=8) == adapted, "and on again"


def test_sampling_is_repeatable(model: Path) -> None:
    generator = Generator(str(model), None, chat=False)
    first, second = (generator.answer(PROMPT, len, max_tokens=8, temperature=1.5, seed=5) for _ in range(2))
    assert first == second


def test_what_cannot_be_answered_is_refused(model: Path, tmp_path: Path) -> None:
    generator = Generator(str(model), None, chat=False)
    with pytest.raises(BadInput, match="the prompt is empty"):
        generator.answer("", len)
    with pytest.raises(BadInput, match="the prompt has"):
        generator.answer("cat " * 300, len)
    with pytest.raises(BadInput, match="holds no tokenizer"):
        Generator(str(tmp_path), None, chat=None)
    with pytest.raises(BadInput, match="holds no adapter_config"):
        Generator(str(model), str(model), chat=None)


@pytest.mark.parametrize("special", [True, False])
def test_in_a_chat_an_answer_ends_where_the_template_ends_turns(model: Path, tmp_path: Path, special: bool) -> None:
    """A model that says the mark again and again, which is not the tokenizer's end token."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.add_tokens([AddedToken("<|turn_end|>", special=special)], special_tokens=special)
    tokenizer.chat_template = CHAT_TEMPLATE.replace("<|end|>", "<|turn_end|>")
    weights = AutoModelForCausalLM.from_pretrained(model)
    weights.resize_token_embeddings(len(tokenizer))
    mark = tokenizer.convert_tokens_to_ids("<|turn_end|>")
    assert mark != tokenizer.eos_token_id
    with torch.no_grad():
        weights.model.norm.weight.fill_(0.0)
        weights.model.norm.weight[0] = 1.0
        weights.model.embed_tokens.weight[:, 0] = 1.0
        weights.lm_head.weight.zero_()
        weights.lm_head.weight[mark, 0] = torch.sign(weights.model(torch.tensor([[5]])).last_hidden_state[0, 0, 0])
    weights.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    made: list[int] = []

    for chat in (True, False):
        generator = Generator(str(tmp_path), None, chat=chat)
        generator._model.register_forward_hook(lambda *_: made.append(1))
        pieces: list[str] = []
        answer = generator.answer(PROMPT, pieces.append, max_tokens=6)
        assert answer == "".join(pieces) == ("" if chat or special else "<|turn_end|>" * 6)
        assert len(made) == (1 if chat else 6)
        made.clear()
