"""Prompts from several columns (`data.template`): the same in training, prepared or streamed, in scoring, and in answers of the model."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.builders.models import write_tokenizer

from tuneyard.api import BadInput, ScoreData, TrainData
from tuneyard.api.prompt_templates import NAMED, prompt_template
from tuneyard.data import prepare, set_prompt_form
from tuneyard.data.bad_sample import BadSample
from tuneyard.data.canonical import Canonical
from tuneyard.data.roles import Chat, Completion, Pair, detect
from tuneyard.data.score_rows import ScoreRows
from tuneyard.runtime.models import saved_prompt_template
from tuneyard.scoring.prompts import PromptEncoder

ALPACA = {"instruction": "Add", "input": "2 2", "output": "4"}


def sample(row: Mapping[str, Any], template: str, **given: Any) -> Any:
    return Canonical(detect([row], template=template, **given))(row)


@pytest.mark.parametrize(
    ("row", "template", "given", "prompt"),
    [
        ({"question": "2+2?", "answer": "4"}, "response", {}, "2+2?\n\n### Response:\n"),
        ({"question": "2+2?", "answer": "4"}, "Q: {question}\nA: ", {}, "Q: 2+2?\nA: "),
        ({"question": "2+2?", "answer": "4"}, "{prompt} {{as JSON}}\n", {}, "2+2? {as JSON}\n"),
        (ALPACA, "response", {}, "Add\n\n2 2\n\n### Response:\n"),
        (ALPACA, "alpaca", {}, NAMED["alpaca"].filled({"prompt": "Add", "input": "2 2"})),
        ({**ALPACA, "input": None}, "alpaca", {}, NAMED["alpaca"].filled({"prompt": "Add"})),
        ({"text": "fine", "stars": 4, "label": "good"}, "{text} ({stars})", {"columns": {"completion": "label"}}, "fine (4)"),
        ({"item": {"q": ["2+2?"]}, "answer": "4"}, "{item.q[0]}\n", {}, "2+2?\n"),
        ({"item.q": "2+2?", "answer": "4"}, "{item.q}\n", {}, "2+2?\n"),
        ({"id": 1, "text": "2+2?", "label": ["4"]}, "response", {}, "2+2?\n\n### Response:\n"),
    ],
)
def test_a_template_makes_the_prompt(row: dict[str, Any], template: str, given: dict[str, Any], prompt: str) -> None:
    assert sample(row, template, **given).prompt == prompt


def test_the_prompt_of_a_chat_and_of_a_preference_is_made_too() -> None:
    chat = sample({"text": "fine", "label": "good"}, "Label: {text}", columns={"completion": "label"}, chat=True)
    assert chat == Chat([{"role": "user", "content": "Label: fine"}, {"role": "assistant", "content": "good"}], None, 1)
    assert sample({"prompt": "2+2?", "chosen": "4", "rejected": "5"}, "response") == Pair("2+2?\n\n### Response:\n", "4", "5")


@pytest.mark.parametrize(
    ("rows", "template", "message"),
    [
        ([{"question": "2+2?", "answer": "4"}], "{questio}", r"data\.template: no column questio; .*\n  next: did you mean \{question\}"),
        ([{"text": "2+2?"}], "response", "of no known format"),
        ([{"prompt": [{"role": "user", "content": "2+2?"}], "completion": "4"}], "response", "prompt holds messages"),
        ([{"messages": [{"role": "user", "content": "2+2?"}]}], "response", "of no known format"),
    ],
)
def test_what_gives_no_prompt_is_refused(rows: list[dict[str, Any]], template: str, message: str) -> None:
    with pytest.raises(BadInput, match=f"(?s){message}"):
        detect(rows, template=template)


@pytest.mark.parametrize("value", [None, {"a": 1}, ""])
def test_a_row_without_a_value_for_a_place_is_bad(value: Any) -> None:
    roles = detect([{"question": "2+2?", "answer": "4"}], template="{question}\n")
    with pytest.raises(BadSample, match="question is"):
        Canonical(roles)({"question": value, "answer": "4"})


@pytest.mark.parametrize("template", ["none", "{question", "{}", "{a:b}", "{a!r}"])
def test_a_template_without_places_is_refused_by_the_file(template: str) -> None:
    with pytest.raises(ValueError, match="template"):
        TrainData.model_validate({"source": "a.jsonl", "template": template})


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return write_tokenizer(Path(tmp_path_factory.mktemp("tokenizer")), chat_template=None)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"question": f"the cat {n}", "extra": n, "answer": f"sat {n}"}) + "\n" for n in range(40)))
    return path


@pytest.mark.parametrize("streaming", [False, True])
def test_training_prepared_or_streamed_and_scoring_render_alike(rows: Path, streaming: bool, tokenizer: Any, tmp_path: Path) -> None:
    template = "Q: {question} ({extra})\n"
    data = TrainData.model_validate({"source": str(rows), "template": template, "streaming": streaming, "workers": 0, "shuffle": False})
    prepared = prepare(data, tokenizer, objective="sft", seed=0, cache_dir=tmp_path / "cache")
    scored = ScoreRows.open(ScoreData.model_validate({"source": str(rows), "template": template, "reference": "answer"}))
    [row] = scored.read(3, 4)
    assert row["prompt"] == "Q: the cat 3 (3)\n"
    assert tokenizer.decode(prepared.train[prepared.order.at(3)]["input_ids"]) == f"{row['prompt']}sat 3<|end|>"
    assert prepared.prompt_template == template


def test_other_templates_are_other_rows_of_the_cache(rows: Path, tokenizer: Any, tmp_path: Path) -> None:
    texts = set()
    for template in (None, "response", "{question}\n"):
        data = TrainData.model_validate({"source": str(rows), "template": template})
        prepared = prepare(data, tokenizer, objective="sft", seed=0, cache_dir=tmp_path / "cache")
        texts.add(tokenizer.decode(prepared.train[0]["input_ids"]))
    assert len(texts) == 3


def test_evaluation_has_the_template_of_the_training(rows: Path, tokenizer: Any, tmp_path: Path) -> None:
    data = TrainData.model_validate({"source": str(rows), "template": "Q: {question}\n", "validation": {"source": str(rows)}})
    prepared = prepare(data, tokenizer, objective="sft", seed=0, cache_dir=tmp_path / "cache")
    assert tokenizer.decode(prepared.validation[0]["input_ids"]).startswith("Q: ")


@pytest.mark.parametrize("template", ["{question}\n=\n", "{prompt}\n=\n"])
def test_a_model_answers_prompts_in_the_template_of_its_training(template: str, tokenizer: Any, tmp_path: Path) -> None:
    saved = copy.deepcopy(tokenizer)
    set_prompt_form(saved, chats=False, template=template)
    saved.save_pretrained(tmp_path / "model")
    assert saved_prompt_template(str(tmp_path / "model")) == "{prompt}\n=\n"
    prompts = PromptEncoder(saved, chat=None, max_length=64, templated=False)
    assert saved.decode(prompts.prompt("the cat")) == "the cat\n=\n"
    assert saved.decode(PromptEncoder(saved, chat=None, max_length=64).prompt("the cat")) == "the cat", "a row that is rendered already"
    set_prompt_form(saved, chats=False)
    saved.save_pretrained(tmp_path / "model")
    assert saved_prompt_template(str(tmp_path / "model")) is None


def test_a_template_of_several_columns_is_filled_by_a_text_for_each(tokenizer: Any) -> None:
    saved = copy.deepcopy(tokenizer)
    set_prompt_form(saved, chats=False, template="{question} ({extra})")
    prompts = PromptEncoder(saved, chat=None, max_length=64, templated=False)
    assert saved.decode(prompts.prompt('{"question": "the cat", "extra": "a dog"}')) == "the cat (a dog)"
    for prompt in (
        "the cat",
        '"the cat"',
        '{"question": "the cat"}',
        '{"question": "the cat", "extra": 3}',
        '{"question": "a", "extra": "b", "c": "d"}',
    ):
        with pytest.raises(BadInput, match="a template makes of question, extra") as refused:
            prompts.prompt(prompt)
        assert refused.value.next_step.endswith('{"question": "…", "extra": "…"}')


def test_named_templates_end_with_a_mark_before_the_answer() -> None:
    for name in NAMED:
        assert prompt_template(name).filled({"prompt": "2+2?"}).endswith("### Response:\n")
        assert isinstance(sample({"prompt": "2+2?", "completion": "4"}, name), Completion)
