"""Files and chats that people did not mean to write: each is used, or is refused in words that say what is wrong."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.builders.models import tokenizer_of
from tests.builders.templates import ALL
from tokenizers import processors

from tuneyard.api import BadInput, TrainData
from tuneyard.data import prepare
from tuneyard.data.chat import ChatTemplate, choose_template, render
from tuneyard.data.messages import TEXT_ALONE, BadSample
from tuneyard.data.roles import Chat, Text
from tuneyard.data.samples import Placed
from tuneyard.data.tokens import Encoder
from tuneyard.scoring.prompts import PromptEncoder

USER, REPLY = {"role": "user", "content": "the cat"}, {"role": "assistant", "content": "sat on a mat"}
SYSTEM = {"role": "system", "content": "be brief"}
TEMPLATE = "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endfor %}"
OPEN = "{% if add_generation_prompt %}<|assistant|>{% endif %}"


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tokenizer_of(["<|user|>", "<|assistant|>", "<|system|>"], eos="<|end|>", chat_template=TEMPLATE + OPEN)


def row(*messages: Any, **columns: Any) -> str:
    return json.dumps({"messages": messages, **columns}) + "\n"


def prepared(folder: Path, content: str | bytes, tokenizer: Any, *, suffix: str = ".jsonl", objective: Any = "sft", **spec: Any) -> Any:
    path = folder / f"rows{suffix}"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    data = TrainData.model_validate({"source": str(path), "maxLength": 64, "maxBadFraction": 0.9, **spec})
    return prepare(data, tokenizer, objective=objective, seed=0, cache_dir=folder / "cache")


GOOD = row(USER, REPLY) * 3
TURNED = "\u202eabc\u200b\u2066d\ufeff"


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        pytest.param(b"\xef\xbb\xbf" + GOOD.encode(), "sat on a mat", id="byte order mark"),
        pytest.param(GOOD.replace("\n", "\r\n"), "sat on a mat", id="CRLF"),
        pytest.param(row(USER, REPLY | {"content": "a\0b"}), "a\0b", id="NUL in a text"),
        pytest.param(row(USER, REPLY | {"content": TURNED}), TURNED, id="marks of direction, no width"),
        pytest.param(row(USER | {"content": ""}, REPLY), "sat on a mat", id="an empty question"),
        pytest.param(row(USER, REPLY | {"content": [{"type": "text", "text": "sat on"}, {"text": " a mat"}]}), "sat on a mat", id="parts"),
        pytest.param(row(SYSTEM, SYSTEM | {"content": "be kind"}, USER, REPLY), "sat on a mat", id="two system turns"),
        pytest.param(row(USER, USER, REPLY), "sat on a mat", id="two questions"),
        pytest.param(row(USER, REPLY, REPLY), "sat on a mat<|end|>sat on a mat", id="two answers"),
        pytest.param(row(REPLY, USER, REPLY), "sat on a mat<|end|>sat on a mat", id="the assistant begins"),
        pytest.param(row(USER, REPLY, USER), "sat on a mat", id="the user ends"),
        pytest.param(row(USER | {"role": " User "}, REPLY), "sat on a mat", id="blanks around a role"),
        pytest.param(row(USER, REPLY, weight=float("inf")), "sat on a mat", id="infinity beside the chat"),
    ],
)
def test_odd_rows_that_are_used(tmp_path: Path, tokenizer: Any, content: Any, answer: str) -> None:
    train = prepared(tmp_path, content, tokenizer).train
    counted = [token for token in train[0]["labels"] if token != -100]
    assert tokenizer.decode(counted) == answer + "<|end|>"


DEEP = 100_000


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        pytest.param(b'{"messages": "\0"}', "not JSON: Invalid control character", id="NUL"),
        *(
            pytest.param(f'{{"messages": {"[" * deep}{"]" * deep}}}'.encode(), "nested too deeply", id=f"{deep} levels")
            for deep in (1000, DEEP)
        ),
        pytest.param(
            row(USER, REPLY)[:-2].encode() + b', "x": ' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}", "nested too deeply", id="beside"
        ),
        pytest.param(
            row(USER, {"role": "assistant", "tool_calls": [{"name": "f", "arguments": '{"a":' * DEEP}]}).encode(),
            "arguments: not usable JSON: nested too deeply",
            id="in a call",
        ),
        pytest.param(b'{"messages": [{"role": "user", "content": "\\ud83d"}]}', "half of a surrogate pair", id="surrogate"),
        pytest.param(b'{"messages": [{"role": "user", "content": NaN}]}', "content is float, not text", id="NaN"),
        pytest.param(row(USER, REPLY | {"weight": float("nan")}).encode(), "weight is nan", id="NaN as weight"),
        pytest.param(row(USER | {"role": ["user"]}, REPLY).encode(), "messages[0] has no role", id="role"),
        pytest.param(
            row(USER | {"content": [{"type": "image_url", "image_url": {"url": "a"}, "text": "alt"}]}, REPLY).encode(),
            f"messages[0] holds something other than text (image_url); {TEXT_ALONE}",
            id="image with a text",
        ),
        *(
            pytest.param(row(USER, REPLY, **{name: ["a.bin"]}).encode(), f"{name} is not empty; {TEXT_ALONE}", id=name)
            for name in ("image", "images", "audio", "video", "videos")
        ),
    ],
)
def test_rows_that_are_refused(tmp_path: Path, tokenizer: Any, line: bytes, reason: str) -> None:
    report = prepared(tmp_path, GOOD.encode() + line.strip() + b"\n", tokenizer).report
    assert report.samples == 3
    assert report.bad == 1
    assert reason in report.bad_examples[0]


def test_rows_with_empty_columns_of_pictures_are_text(tmp_path: Path, tokenizer: Any) -> None:
    assert prepared(tmp_path, row(USER, REPLY, images=[]) * 2 + row(USER, REPLY, images=["a"]), tokenizer).report.bad == 1
    with pytest.raises(BadInput) as refused:
        prepared(tmp_path, row(USER, REPLY, images=["a"]) * 3, tokenizer)
    assert refused.value.next_step == "remove the column images to train on the text of these rows alone"


@pytest.mark.parametrize("deep", [1000, DEEP])
def test_a_json_array_with_an_item_nested_too_deeply_is_refused(tmp_path: Path, tokenizer: Any, deep: int) -> None:
    rows = "[" + GOOD.strip().replace("\n", ",") + ', {"messages": ' + "[" * deep + "]" * deep + "}]"
    with pytest.raises(BadInput, match="nested too deeply") as refused:
        prepared(tmp_path, rows, tokenizer, suffix=".json")
    assert "jsonl" in refused.value.next_step


def test_a_line_of_a_megabyte_is_cut_and_said(tmp_path: Path, tokenizer: Any) -> None:
    report = prepared(tmp_path, GOOD + row(USER, REPLY | {"content": "sat on " * 150_000}), tokenizer).report
    assert (report.samples, report.truncated) == (4, 1)


def test_a_role_that_the_template_leaves_out_is_a_bad_row(tmp_path: Path, tokenizer: Any) -> None:
    known = (
        "{% for m in messages if m['role'] in ('user', 'assistant') %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endfor %}"
    )
    report = prepared(
        tmp_path, GOOD + row(USER | {"role": "critic"}, USER, REPLY) + row(SYSTEM, USER, REPLY), tokenizer, chatTemplate=known
    ).report
    assert report.bad == 2
    assert "knows no role 'critic'" in report.bad_examples[0], "though it says the same as the user"
    assert "leaves out content of the system" in report.bad_examples[1]


def test_a_role_that_the_template_does_not_name_is_a_bad_row(tmp_path: Path, tokenizer: Any) -> None:
    """Templates leave such a turn out, or print whatever role there is; "s" is part of many words of a rendered chat."""
    report = prepared(tmp_path, GOOD + row({"role": "usr", "content": "s"}, REPLY), tokenizer).report
    assert report.bad == 1
    assert "knows no role 'usr'" in report.bad_examples[0]
    names_it = TEMPLATE.replace("{% for", "{% set known = 'usr' %}{% for", 1) + OPEN
    assert not prepared(tmp_path, GOOD + row({"role": "usr", "content": "s"}, REPLY), tokenizer, chatTemplate=names_it).report.bad


# --- templates --------------------------------------------------------------------------------------------------------------------

MEASURED = """
import resource, sys
from tuneyard.data.chat import ChatTemplate, choose_template, render
from tuneyard.data.roles import Chat
turns = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
render(Chat(turns), ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}", "", False, True), {}, need_spans=False)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for template in sys.argv[1:]:
    try:
        render(Chat(turns), ChatTemplate(template, "data.chatTemplate", False, True), {}, need_spans=False)
    except Exception as refused:
        print(str(refused).splitlines()[0])
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux alone keeps a limit of the address space")
def test_templates_that_would_fill_the_memory_are_refused_before_they_do() -> None:
    """Each took 10 to 20 GB."""
    templates = [
        "{{ 'x' * 10 ** 10 }}",
        "{{ '%10000000000d' | format(1) }}",
        "{{ 'x' | center(10 ** 10) }}",
        "{{ messages[0].content * 10 ** 10 if messages[0].content == 'hi' }}",
        "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
    ]
    done = subprocess.run([sys.executable, "-c", MEASURED, *templates], capture_output=True, text=True, check=True)
    *refused, gib = done.stdout.splitlines()
    assert len(refused) == len(templates), done.stdout
    assert all(
        words in line for words, line in zip(("repeats a text", "2 GiB", "2 GiB", "repeats a text", "million"), refused, strict=True)
    )
    assert float(gib) < 0.5, "no template was given much memory"


@pytest.mark.parametrize("text", ["{{ documents[0].title }}", "{{ conversations[0] }}"])
def test_a_template_that_needs_a_variable_that_rows_lack_is_refused(text: str) -> None:
    with pytest.raises(BadSample, match="the chat template"):
        render(Chat([USER, REPLY]), ChatTemplate(text + TEMPLATE, "data.chatTemplate", False, True), {}, need_spans=False)


def test_a_template_without_an_end_of_the_last_answer_is_warned_of(tmp_path: Path, tokenizer: Any) -> None:
    """Where the opening of the next turn ends one, that token is learned; where it is plain text, there is none."""
    opened = "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] }}{% endfor %}" + OPEN
    plain = "{% for m in messages %}{{ '### ' + m['role'] + ': ' + m['content'] + ' ' }}{% endfor %}"
    plain += "{% if add_generation_prompt %}{{ '### assistant: ' }}{% endif %}"
    assert not prepared(tmp_path, GOOD, tokenizer).report.warnings()
    assert not prepared(tmp_path, GOOD, tokenizer, chatTemplate=opened).report.warnings()
    [said] = prepared(tmp_path, GOOD, tokenizer, chatTemplate=plain).report.warnings()
    assert said.startswith("the chat template (data.chatTemplate) puts no token after the last answer of a chat")


# --- tokenizers -------------------------------------------------------------------------------------------------------------------


def test_a_tokenizer_without_an_end_trains_chats_and_texts_and_refuses_completions(tmp_path: Path, tokenizer: Any) -> None:
    endless = copy.deepcopy(tokenizer)
    endless.eos_token = None
    assert endless.decode(prepared(tmp_path, GOOD, endless).train[0]["input_ids"]).endswith("sat on a mat<|end|>")
    text = json.dumps({"text": "the cat sat"}) + "\n"
    assert endless.decode(prepared(tmp_path, text, endless, objective="clm").train[0]["input_ids"]) == "the cat sat"
    with pytest.raises(BadInput, match="the tokenizer has no end token"):
        prepared(tmp_path, json.dumps({"prompt": "a", "completion": "b"}) + "\n", endless)


def test_a_beginning_is_written_once() -> None:
    """By the template or by the tokenizer, and neither again where a text already begins with it."""
    writes = next(template for template in ALL if str(template) == "ours-writes_bos").tokenizer()
    begin, name = writes.bos_token_id, writes.bos_token
    writes.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{name} $A", pair=f"{name} $A {name} $B", special_tokens=[(name, begin)]
    )
    assert writes("the cat")["input_ids"][0] == begin
    prompts = PromptEncoder(writes, chat=True, max_length=99)
    plain = PromptEncoder(writes, chat=False, max_length=99)
    encoder = Encoder(writes, "all", 99, "error")
    found = [
        prompts.prompt("the cat"),
        prompts.likelihood("the cat", "sat").ids,
        plain.prompt("the cat"),
        plain.prompt(f"{name}the cat"),
        plain.likelihood(f"{name}the cat", " sat").ids,
        encoder.encode([Placed("row", Text(f"{name}the cat"))]).ids[0].tolist(),
    ]
    assert [ids.count(begin) for ids in found] == [1] * len(found)
    assert all(ids[0] == begin for ids in found)


def test_a_tokenizer_without_offsets_trains_texts_and_refuses_chats(tmp_path: Path) -> None:
    from transformers import ByT5Tokenizer

    slow = ByT5Tokenizer()
    text = json.dumps({"text": "the cat sat"}) + "\n"
    assert slow.decode(prepared(tmp_path, text, slow, objective="clm").train[0]["input_ids"]) == "the cat sat</s>"
    slow.chat_template = TEMPLATE + OPEN
    with pytest.raises(BadInput, match="gives no character offsets of tokens"):
        prepared(tmp_path, GOOD, slow)


def test_a_template_that_trl_does_not_know_is_rendered_with_bounds_alone(monkeypatch: pytest.MonkeyPatch, tokenizer: Any) -> None:
    """TRL renders a template to find out whether it takes tools, without any limit: one with nested loops took 388 s."""
    from trl import chat_template_utils

    def must_not_run(*_: Any) -> None:
        raise AssertionError("rendered without bounds")

    monkeypatch.setattr(chat_template_utils, "get_training_chat_template", must_not_run)
    assert choose_template(tokenizer, None).text == TEMPLATE + OPEN
