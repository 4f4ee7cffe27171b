"""A model whose template ends turns with a token of its own, as Qwen's: what is trained and saved stops there, whoever asks it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.builders.models import cpu_plan, tiny_config, tokenizer_of, train_request, train_task
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, set_seed

from tuneyard.cli import main
from tuneyard.scoring.generation import Generator
from tuneyard.training import train

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
ANSWERS = {"the cat": "sat on a mat", "red birds": "sang old songs", "one dog": "run over two hills"}
EOS, MARK = 0, 3


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("qwen")
    set_seed(7)
    AutoModelForCausalLM.from_config(tiny_config("qwen2")).save_pretrained(folder)
    tokenizer_of(["<|im_start|>", "<|im_end|>"], eos="<|endoftext|>", chat_template=CHATML).save_pretrained(folder)
    return folder


def ends(uri: str | None) -> Any:
    assert uri is not None
    return GenerationConfig.from_pretrained(uri).eos_token_id


def chats(folder: Path) -> Path:
    turns = [[{"role": "user", "content": q}, {"role": "assistant", "content": a}] for q, a in ANSWERS.items()]
    path = folder / "chats.jsonl"
    path.write_text("".join(json.dumps({"messages": each}) + "\n" for each in turns * 4))
    return path


@pytest.mark.parametrize("pack", [True, False])
def test_answers_learned_by_heart_end_by_themselves(pack: bool, qwen: Path, tmp_path: Path) -> None:
    data = {"source": str(chats(tmp_path)), "maxLength": 64, "pack": pack}
    task = train_task(qwen, chats(tmp_path), objective="sft", data=data, steps=60, optimizer={"learningRate": 1e-2})

    result = train(train_request(tmp_path / "out", task, cpu_plan()))

    assert ends(result.model_uri) == [MARK, EOS]
    generator = Generator(str(result.model_uri), None, chat=True)
    assert {q: generator.answer(q, len, max_tokens=40) for q in ANSWERS} == ANSWERS
    loaded, tokenizer = AutoModelForCausalLM.from_pretrained(result.model_uri), AutoTokenizer.from_pretrained(result.model_uri)
    asked = tokenizer.apply_chat_template([{"role": "user", "content": "the cat"}], add_generation_prompt=True, return_tensors="pt")
    made = loaded.generate(**asked, max_new_tokens=40, do_sample=False)
    assert made[0, -1] == MARK, "transformers stops without being told"


def test_adapters_merged_weights_and_preferences_name_it_and_plain_text_does_not(qwen: Path, tmp_path: Path) -> None:
    data = {"source": str(chats(tmp_path)), "maxLength": 64}
    lora = {"lora": {"rank": 4, "merge": True}}
    adapted = train(train_request(tmp_path / "lora", train_task(qwen, chats(tmp_path), objective="sft", data=data, method=lora, steps=1)))
    assert ends(adapted.adapter_uri) == ends(adapted.merged_uri) == [MARK, EOS]
    assert main(["merge", str(adapted.adapter_uri), "--out", str(tmp_path / "later")]) == 0
    assert ends(str(tmp_path / "later")) == [MARK, EOS]

    for name, messages in (("messages", True), ("texts", False)):
        rows = [
            {"prompt": [{"role": "user", "content": q}], "chosen": [{"role": "assistant", "content": a}]}
            | {"rejected": [{"role": "assistant", "content": "no"}]}
            if messages
            else {"prompt": q + " ", "chosen": a, "rejected": "no"}
            for q, a in ANSWERS.items()
        ]
        pairs = tmp_path / f"{name}.jsonl"
        pairs.write_text("".join(json.dumps(row) + "\n" for row in rows * 4))
        task = train_task(qwen, pairs, objective="dpo", data={"source": str(pairs), "maxLength": 64}, steps=1)
        result = train(train_request(tmp_path / name, task))
        assert ends(result.model_uri) == ([MARK, EOS] if messages else EOS), name

    text = tmp_path / "text.jsonl"
    text.write_text('{"text": "the cat sat on a mat"}\n' * 16)
    plain = train(train_request(tmp_path / "plain", train_task(qwen, text, steps=1)))
    assert ends(plain.model_uri) == EOS
