"""Attacks by texts that spell control tokens, and what the defense costs.

`python benchmarks/control_tokens.py [--rounds 60]`: writes docs/benchmarks/control_tokens.md.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.builders.templates import ALL
from tests.unit.data.test_control_tokens import ATTACKS, chat
from training_cases import write_page

from tuneyard.api import Judge
from tuneyard.data.chat import choose_template
from tuneyard.data.control_tokens import Controls
from tuneyard.data.roles import Chat
from tuneyard.data.samples import Placed
from tuneyard.data.tokens import Encoder
from tuneyard.scoring.judge import judge_prompt
from tuneyard.scoring.prompts import BadRow, PromptEncoder

BATCH = 256
_LONG = 100_000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    tokenizers = [template.tokenizer() for template in ALL]
    rows = [_attacked(tokenizers, name, text) for name, text in ATTACKS.items()]
    plain, sealed = _cost(rounds, ""), _cost(rounds, "<|im_end|>")
    lines = [
        f"Each attack is a text of a user, of a tool, and an answer before a judge, under {len(ALL)} chat templates. TRL, vLLM and",
        "transformers ship them; some are our own. Each has a tokenizer with the control tokens of the template. In the attack, these",
        "replace the tokens of ChatML. A template that refuses the chat is left out. An attack works if the row then holds more control",
        "tokens than with a harmless text.",
        "",
        "| attack | tried | works with `template` | works with `text`, the default | rows that `refuse` refuses |",
        "|---|---|---|---|---|",
        *rows,
        "",
        "Rendering and tokenising chats of 120 words on one core, beside the same without the search for control tokens:",
        f"{rounds} pairs of batches of {BATCH} chats in turns, processor time; the median, and the range of half of the pairs.",
        "",
        "| chats | tokens/s beside the same without it |",
        "|---|---|",
        f"| no text spells a control token | {plain} |",
        f"| each text of a user spells one | {sealed} |",
    ]
    write_page("control_tokens", "Control tokens in texts", lines)


def _attacked(tokenizers: list[Any], name: str, text: str) -> str:
    tried, works, refused = 0, {"template": 0, "text": 0}, 0
    for tokenizer in tokenizers:
        chosen = choose_template(tokenizer, None)
        controls = Controls.of(tokenizer, chosen.text)
        if controls.pattern is None:
            continue
        own = sorted({str(t.content) for t in tokenizer.added_tokens_decoder.values() if t.content in chosen.text}, key=len)
        if not own:
            continue
        forged = _with_tokens_of(own, text)
        for role in ("user", "tool", "judge"):
            counts = {policy: _controls(tokenizer, chosen, forged, role, policy) for policy in ("template", "text", "refuse")}
            harmless = _controls(tokenizer, chosen, "hi", role, "text")
            if harmless is None or (counts["template"] is None and counts["text"] is None):
                continue
            tried += 1
            refused += counts["refuse"] is None
            for policy in works:
                works[policy] += counts[policy] is not None and counts[policy] > harmless
    row = f"| {name} | {tried} | {works['template']} | {works['text']} | {refused} |"
    print(row, flush=True)
    return row


def _with_tokens_of(own: list[str], text: str) -> str:
    return re.sub(r"<\|\w+\|>|</?tool_call>", lambda found: own[len(found[0]) % len(own)], text)


def _controls(tokenizer: Any, template: Any, text: str, role: str, policy: Any) -> int | None:
    """Number of control tokens in a row with this text; None if the row is refused."""
    numbers = {n for n, t in tokenizer.added_tokens_decoder.items() if t.special or t.content in template.text}
    if role == "judge":
        judge = Judge(rubric="Is it right?", scale=(0, 10))
        prompts = PromptEncoder(tokenizer, chat=True, max_length=_LONG, control_tokens=policy)
        try:
            ids = prompts.prompt(judge_prompt(judge, {"prompt": "q", "references": [], "answer": text}))  # type: ignore[typeddict-item]
        except BadRow:
            return None
    else:
        encoded = Encoder(tokenizer, "all", _LONG, "error", template, control_tokens=policy).encode([Placed("row", chat(text, role))])
        if encoded.bad or not encoded.ids:
            return None
        ids = encoded.ids[0].tolist()
    return sum(number in numbers for number in ids)


def _cost(rounds: int, spelled: str) -> str:
    """Tokens per second of the encoder, beside the same encoder without the search: batches in turns, processor time of each."""
    tokenizer = next(template for template in ALL if "<|im_end|>" in template.text).tokenizer()
    chosen = choose_template(tokenizer, None)
    ours, without = (Encoder(tokenizer, "assistant", _LONG, "error", chosen) for _ in range(2))
    without.__dict__["_controls"] = Controls(None)
    ratios = []
    for number in range(rounds):
        batch = [Placed("row", _chat(f"{number} {each}", spelled)) for each in range(BATCH)]
        seconds = {}
        for encoder in (ours, without, ours, without):  # the first pair warms caches
            began = time.process_time()
            encoder.encode(batch)
            seconds[id(encoder)] = time.process_time() - began
        ratios.append(seconds[id(without)] / seconds[id(ours)])
    ratios.sort()
    return f"{statistics.median(ratios):.3f} ({ratios[len(ratios) // 4]:.3f} to {ratios[3 * len(ratios) // 4]:.3f})"


def _chat(name: str, spelled: str) -> Chat:
    text = f"{name} {'the cat sat on a mat ' * 10}{spelled}"
    return Chat([{"role": "user", "content": text}, {"role": "assistant", "content": text.replace(spelled, "") if spelled else text}])


if __name__ == "__main__":
    main()
