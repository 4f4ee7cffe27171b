"""The proof of an export: llama.cpp loads the file, and computes what transformers computes from the folder.

Compared are the tokens of some texts, the prompts that the chat template writes, and the log-probabilities of the likeliest tokens while
llama.cpp answers. What a difference may be is measured: the weights of the folder are rounded as the file's are, then changed by as much
again, for activations, which llama.cpp rounds too.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jinja2 import TemplateError
from transformers import AutoModelForCausalLM

from tuneyard.api import JobFailed
from tuneyard.training.export.kinds import Quantize
from tuneyard.training.export.writing import Source, rounded_as
from tuneyard.training.generators import kept_generators

_TEXTS = (
    "The quick brown fox doesn't jump; it's 12,345.67 steps (not 1234567) away.",
    "Größe, naïve café, Привет мир, 你好,世界! नमस्ते",
    "def f(x):\n    return x ** 2\n\n\n\tif a[0] != 'b': print(\"%d\" % 3)",
    "Two  spaces,\ttabs\t\tand trailing ones   ",
    "I'LL say: WE'RE here... 😀👍 #1 @you https://example.com/a?b=c&d=1_000",
)
_CHATS = (
    ({"role": "user", "content": "What is 2 + 2?"},),
    (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": "Who are you?"},
    ),
)
_ROWS, _LENGTH, _PREDICT, _SEED = 2, 24, 12, 7
_NOISE, _FLOOR = 4.0, 1e-3
"""The difference may be this multiple of the measured rounding. The floor: other kernels, in fp32."""
_EPS = {Quantize.F32: 2.0**-23, Quantize.F16: 2.0**-10, Quantize.BF16: 2.0**-7, Quantize.Q8_0: 2.0**-6}
"""What a type rounds, relative to a number."""
_REPORT = "nothing was written; report this with the name of the model, and use a model folder (tuneyard export --format merged)"
_LIMIT_S = 3600.0


@dataclass(frozen=True)
class Proof:
    """Differences of log-probabilities: of llama.cpp with the file to transformers with the folder, and of one rounding of the weights.

    Both are root mean squares over the likeliest tokens of a position, and of the positions the median: rounding may turn a single one.
    `same` of `predicted` greedy tokens are those of transformers. `renders`: whether llama.cpp writes the prompts of chats as transformers
    does; None without a template.
    """

    difference: float
    rounding: float
    same: int
    predicted: int
    renders: bool | None


def prove(source: Source, path: Path, kind: Quantize) -> Proof:
    """Compare the file at `path` with the folder that it was made from. Raises JobFailed if llama.cpp reads something else."""
    chats = [(chat, said) for chat in _CHATS if (said := _rendered(source.tokenizer, chat)) is not None]
    texts = [*_TEXTS, *(said for _, said in chats)]
    prompts = [*_rows(int(source.config.vocab_size)), *(_tokens(source.tokenizer, said) for _, said in chats)]
    told = _ask(path, {"texts": texts, "prompts": prompts, "predict": _PREDICT, "chats": [chat for chat, _ in chats]})
    for text, tokens in zip(texts, told["texts"], strict=True):
        expected = _tokens(source.tokenizer, text)
        if tokens != expected:
            at = next((index for index, pair in enumerate(zip(tokens, expected, strict=False)) if pair[0] != pair[1]), 0)
            raise JobFailed(
                f"llama.cpp reads {text[:60]!r} as other tokens, from token {at} on: {tokens[at:][:8]}, not {expected[at:][:8]}", _REPORT
            )
    difference, rounding, same, predicted = _compared(source, prompts, told["prompts"], kind)
    if not difference <= _NOISE * rounding + _FLOOR:  # NaN too
        raise JobFailed(
            f"llama.cpp computes other answers than transformers: log-probabilities differ by {difference:.1e}, and {kind.value} rounds by "
            f"{rounding:.1e}",
            _REPORT,
        )
    bos = source.tokenizer.bos_token or ""
    renders = [
        told.removeprefix(bos) == said.removeprefix(bos) for (_, said), told in zip(chats, told["chats"], strict=True) if told is not None
    ]
    return Proof(difference, rounding, same, predicted, bool(renders) and all(renders) if chats else None)


def _compared(source: Source, prompts: list[list[int]], told: list[list[dict[str, Any]]], kind: Quantize) -> tuple[float, float, int, int]:
    """Difference, rounding, and the number of equal greedy tokens among all."""
    model = AutoModelForCausalLM.from_pretrained(source.folder, dtype=torch.float32)
    expected = [_log_probabilities(model, prompt, said) for prompt, said in zip(prompts, told, strict=True)]
    with torch.no_grad(), kept_generators():
        torch.manual_seed(_SEED)
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.copy_(rounded_as(weight, kind))
                weight.mul_(1 + _EPS[kind] * (torch.rand_like(weight) - 0.5))
    rounded = [_log_probabilities(model, prompt, said) for prompt, said in zip(prompts, told, strict=True)]
    differences, roundings, same = list[float](), list[float](), 0
    for said, one, other in zip(told, expected, rounded, strict=True):
        for position, at in enumerate(said):
            same += int(one[position].argmax()) == at["token"]
            if not at["likeliest"]:
                continue
            likeliest = [int(token) for token in at["likeliest"]]
            exact = one[position, likeliest]
            differences.append(_rms(torch.tensor([*at["likeliest"].values()], dtype=torch.float64) - exact))
            roundings.append(_rms(other[position, likeliest] - exact))
    if not differences:
        raise JobFailed("llama.cpp ends each answer at once", _REPORT)
    return statistics.median(differences), statistics.median(roundings), same, sum(map(len, told))


def _log_probabilities(model: Any, prompt: list[int], said: list[dict[str, Any]]) -> torch.Tensor:
    """Of each position that llama.cpp has predicted, shape (positions, vocabulary), after the same tokens."""
    row = torch.tensor([[*prompt, *(at["token"] for at in said)]])
    model.eval()
    with torch.no_grad():
        logits: torch.Tensor = model(input_ids=row).logits[0, len(prompt) - 1 : -1]
    return logits.double().log_softmax(-1)


def _rms(values: torch.Tensor) -> float:
    return float(values.square().mean().sqrt())


def _rows(vocabulary: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(_SEED)
    rows: list[list[int]] = torch.randint(vocabulary, (_ROWS, _LENGTH), generator=generator).tolist()
    return rows


def _tokens(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


def _rendered(tokenizer: Any, chat: Any) -> str | None:
    """The prompt of a chat; None where the template refuses it, or there is none."""
    if tokenizer.chat_template is None:
        return None
    try:
        return str(tokenizer.apply_chat_template(list(chat), tokenize=False, add_generation_prompt=True))
    except (TemplateError, ValueError, TypeError):
        return None


def _ask(path: Path, question: dict[str, Any]) -> Any:
    with tempfile.TemporaryDirectory(prefix="tuneyard-export-") as scratch:
        answer = Path(scratch) / "answer.json"
        command = [sys.executable, "-P", "-m", "tuneyard.training.export.llama_cpp", str(path)]
        asked = json.dumps({**question, "answer": str(answer)})
        done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
        if done.returncode != 0 or not answer.exists():
            lines = (
                [line for line in done.stderr.splitlines() if "error" in line.lower()] or done.stderr.splitlines() or ["it said nothing"]
            )
            raise JobFailed(f"llama.cpp cannot load the file (exit code {done.returncode}): {lines[-1].strip()[:300]}", _REPORT)
        return json.loads(answer.read_text())
