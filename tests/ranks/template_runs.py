"""Each chat template in use: a tiny model learns 24 answers by heart under it, and is asked for them.

`python -m tests.ranks.template_runs docs/reference/templates.md` writes the page of results; it takes some ten minutes.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

import torch
from tests.builders.models import TEXT, cpu_plan, tiny_config, train_request, train_task
from tests.builders.templates import ALL, Template
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed

from tuneyard.api import BadInput
from tuneyard.data import turn_end
from tuneyard.data.answer_form import answer_form
from tuneyard.data.chat import ChatTemplate, choose_template, render
from tuneyard.data.messages import BadSample, message_list
from tuneyard.data.roles import Chat
from tuneyard.scoring.generation import Generator
from tuneyard.training import train

ROWS = 24
_AT_MOST = 48
_WORDS = TEXT.split()
_TOOL = {"type": "function", "function": {"name": "weather", "description": "d", "parameters": {"type": "object", "properties": {}}}}
_CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": {"city": "Graz"}}}


def answers() -> dict[str, str]:
    """24 questions of three words, each with an answer of four."""
    pick = [_WORDS[i % len(_WORDS)] for i in range(7 * ROWS)]
    return {f"{_WORDS[i % 20]} {pick[3 * i]} {pick[5 * i]}": " ".join(pick[4 * i + j * (i % 3 + 1)] for j in range(4)) for i in range(ROWS)}


@dataclass(frozen=True)
class Outcome:
    """`exact`: of 24 answers by `Generator`. `stopped`: of 24 by transformers' generate, with what is saved and nothing else. `refusal`:
    why nothing was trained."""

    template: Template
    end: str
    spans: str
    kinds: dict[str, str]
    exact: int = 0
    stopped: int = 0
    refusal: str = ""


def outcome(template: Template, folder: Path) -> Outcome:
    """Train and ask under a template."""
    tokenizer = template.tokenizer()
    end = turn_end(tokenizer)
    chosen = choose_template(tokenizer, None)
    kinds = {kind: _rendered(kind, tokenizer, chosen) for kind in ("system", "multi-turn", "tools", "thinking")}
    known = (template, "" if end is None else tokenizer.convert_ids_to_tokens(end), _how(chosen), kinds)
    thinks = "does not continue the prompt" in _rendered("plain", tokenizer, chosen)
    try:
        return Outcome(*known, *_by_heart(tokenizer, folder, thinks=thinks))
    except BadInput as refusal:
        first = next((line for line in refusal.cause.splitlines() if "jsonl:1: " in line), refusal.cause)
        return Outcome(*known, refusal=first.partition("jsonl:1: ")[2] or first)


def _how(template: ChatTemplate) -> str:
    return "TRL's twin" if template.own else "marks" if template.marked else "prefixes"


def _by_heart(tokenizer: Any, folder: Path, *, thinks: bool) -> tuple[int, int]:
    base, data = folder / "base", folder / "chats.jsonl"
    set_seed(7)
    AutoModelForCausalLM.from_config(tiny_config(vocab_size=len(tokenizer), max_position_embeddings=4096)).save_pretrained(base)
    tokenizer.save_pretrained(base)
    thought = {"reasoning_content": "one dog"} if thinks else {}
    chats = [[{"role": "user", "content": q}, {"role": "assistant", "content": a} | thought] for q, a in answers().items()]
    data.write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in chats))
    task = train_task(
        base,
        data,
        objective="sft",
        data={"source": str(data), "maxLength": 4096, "pack": False},
        steps=120,
        batch={"global": ROWS},
        optimizer={"learningRate": 6e-3},
    )
    result = train(train_request(folder / "run", task, cpu_plan(micro_batch=ROWS, grad_accum=1)))
    assert result.model_uri is not None
    generator = Generator(result.model_uri, None, chat=None)
    exact = sum(_said(generator.answer(q, len, max_tokens=_AT_MOST)) == a for q, a in answers().items())
    return exact, sum(_stops(result.model_uri))


def _said(answer: str) -> str:
    return answer.rpartition("</think>")[2].strip()


def _stops(folder: str) -> Iterable[bool]:
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    parts = answer_form(str(tokenizer.chat_template), tokenizer.special_tokens_map).parts
    for question, answer in answers().items():
        content = [{"type": "text", "text": question}] if parts else question
        given = tokenizer.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True, return_tensors="pt")
        with torch.no_grad():
            made = model.generate(**given, max_new_tokens=_AT_MOST, do_sample=False)[0, given["input_ids"].shape[1] :]
        yield len(made) < _AT_MOST and _said(tokenizer.decode(made, skip_special_tokens=True)).startswith(answer)


def _rendered(kind: str, tokenizer: Any, template: ChatTemplate) -> str:
    """`yes`, or what is refused."""
    exchange: list[Any] = [{"role": "user", "content": "the cat"}, {"role": "assistant", "content": "sat on a mat"}]
    thought = [exchange[0], exchange[1] | {"reasoning_content": "one dog"}]
    asks = [exchange[0], {"role": "assistant", "content": "", "tool_calls": [_CALL]}]
    result = {"role": "tool", "name": "weather", "tool_call_id": "abcdefghi", "content": "no rain"}
    messages = {
        "plain": exchange,
        "system": [{"role": "system", "content": "be brief"}, *exchange],
        "multi-turn": exchange * 2,
        "tools": [*asks, result, exchange[1]],
        "thinking": thought * 2,
    }[kind]
    chat = Chat(message_list(messages, "messages"), [_TOOL] if kind == "tools" else None)
    try:
        rendered = render(chat, template, tokenizer.special_tokens_map, need_spans=True)
    except (BadSample, BadInput) as refusal:
        return str(refusal).splitlines()[0]
    return "last turn" if rendered.muted else "yes"


# --- the page ---------------------------------------------------------------------------------------------------------------------

_INTRO = """# Chat templates

{packages}. A model of two layers was trained for each template
on 24 questions and answers (120 steps), with an end token that the template does not write, then saved, loaded and asked. Templates are
read from the installed packages; those of TRL are the templates of the families that they are named after. `ours`: templates with traits
that none of the others has.

- end: the token that ends an answer, as found in the template. None: nothing, or plain text.
- answers found by: marks in the template, its twin in TRL, or prefixes ([what carries loss](../data.md#what-carries-loss)).
- thinking: yes, or of the last turn alone; refused: a row with reasoning is a bad row.
- exact: answers of 24 that are right and nothing else, asked with `tuneyard generate`. stopped: answers of 24 that are right and end by
  themselves, with transformers' `generate` and no setting.

Written by `.venv/bin/python -m tests.ranks.template_runs docs/reference/templates.md`, {date}.

| template | from | end | answers found by | system | multi-turn | tools | thinking | exact | stopped |
|---|---|---|---|---|---|---|---|---|---|
"""


def page(outcomes: list[Outcome]) -> str:
    """The page in Markdown."""
    packages = ", ".join(f"{name} {_version(name)}" for name in ("trl", "vllm", "transformers", "jinja2"))
    rows = [_row(each) for each in outcomes]
    trained = [each for each in outcomes if not each.refusal]
    ended = [each for each in trained if each.end]
    sums = (
        f"\n{len(outcomes)} templates, {len(trained)} trained. Of the {len(ended)} with an end token, "
        f"{sum(e.exact == ROWS for e in ended)} give all {ROWS} answers exactly, and {sum(e.stopped == ROWS for e in ended)} stop by "
        f"themselves in all {ROWS}.\n"
    )
    refused = "".join(f"- {each.template.name} ({each.template.source}): {_cell(each.refusal)}\n" for each in outcomes if each.refusal)
    intro = _INTRO.format(packages=packages, date=datetime.now(UTC).date())
    return intro + "".join(rows) + sums + (f"\n## Refused\n\n{refused}" if refused else "")


def _version(package: str) -> str:
    """vLLM's package for CPUs has a name of its own."""
    return version(packages_distributions()[package][0])


def _row(each: Outcome) -> str:
    short = {kind: "refused" if text not in ("yes", "last turn") else text for kind, text in each.kinds.items()}
    figures = ["refused", ""] if each.refusal else [str(each.exact), str(each.stopped)]
    end = f"`{_cell(each.end)}`" if each.end else ""
    return "| " + " | ".join([each.template.name, each.template.source, end, each.spans, *short.values(), *figures]) + " |\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def main() -> None:
    outcomes = []
    for template in ALL:
        with tempfile.TemporaryDirectory() as folder:
            outcomes.append(outcome(template, Path(folder)))
    Path(sys.argv[1]).write_text(page(outcomes))


if __name__ == "__main__":
    main()
