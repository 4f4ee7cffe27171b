"""Settings of a train task for inspected data, and the commented JobSpec with them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import yaml

from tuneyard.catalog.estimates import width_of
from tuneyard.catalog.rows import positions_of
from tuneyard.cli.init.reading import Reading
from tuneyard.data.faults import one_of_each

if TYPE_CHECKING:
    from tuneyard.data import Inspection

_CHARACTERS_PER_TOKEN = 3.0
"""Fewer than in English with today's tokenizers (4), so that other languages and code are seldom cut."""
_LENGTHS = (512, 1024, 2048, 4096, 8192)
_OBJECTIVES = {"chat": "sft", "prompt-completion": "sft", "preference": "dpo", "text": "clm"}
_TEACHES = {
    "chat": "Supervised fine-tuning: only what the assistant says counts for the loss",
    "prompt-completion": "Supervised fine-tuning: only completions count for the loss",
    "preference": "Direct preference optimisation: the chosen answer over the rejected one",
    "text": "Plain language modelling: every token counts for the loss",
}
_INSTRUCT, _BASE = "Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen2.5-0.5B"
_MODELS = {"chat": _INSTRUCT, "prompt-completion": _INSTRUCT, "preference": _INSTRUCT, "text": _BASE}
"""Models by format."""
_STEPS_AN_EPOCH = 100
"""The least number of steps per epoch. The batch becomes smaller for it, down to 4 rows: adapters learn more from many small steps."""
_STEPS, _MOST_EPOCHS = 100, 25
"""The least number of steps, and the epochs that it may take: fewer leave an adapter, which begins at zero, where it began. OpenAI's
fine-tuning has the same bounds: 100 rows, one a step, and 25 epochs.
"""
_STEPS_OF_ANSWERS, _EPOCHS_OF_ANSWERS = 300, 10
"""The same where answers are learned. Google's fine-tuning by rewards stops at 10 epochs, too."""
_RATE, _RATE_OF_PREFERENCE, _RATED_WIDTH = 2e-4, 5e-6, 4096
"""Learning rates of adapters on a model of this hidden size, as in QLoRA (Dettmers et al. 2023) and in TRL's script for DPO."""
_EXPONENT, _EXPONENT_OF_QWEN = 0.78, 0.08
"""They fall with this power of the hidden size. Tinker's recipes have fitted both; the first is that of Llama models."""
_TOLERATED_BAD = 0.01
"""The default of `data.maxBadFraction`."""
TOLERATED_AT_MOST = 0.1
"""The largest proposed `maxBadFraction`. With more bad rows, a fault of the whole file is likelier."""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A train task by its settings."""

    name: str
    source: str
    model: str
    format: str
    reading: Reading
    asked: str
    answered: str
    """Columns of prompts and answers, for an example of a score task."""
    rows: int
    complete: bool
    """False: `rows` counts the rows that were read, and the data have more."""
    max_length: int
    length_why: str
    pack: bool
    validation_fraction: float
    max_bad_fraction: float
    learning_rate: float
    width: int | None
    batch: int
    epochs: int
    notes: list[str] = field(default_factory=list)

    @property
    def rows_text(self) -> str:
        return f"{self.rows:,} sample{'' if self.rows == 1 else 's'}" if self.complete else f"more than {self.rows:,} samples"

    @property
    def _by_width(self) -> str:
        return f" on a model of hidden size {self.width:,}" if self.width is not None else ""

    def text(self) -> str:
        """The JobSpec as YAML with a comment on each setting."""
        return "\n".join([*self._head(), *self._data(), *self._method(), *self._rest(), ""])

    def _head(self) -> list[str]:
        return [
            f"# Trains a language model on {_yaml(self.source)} ({self.format}, {self.rows_text}).",
            "# Written by `tuneyard init`; change what you like, then:",
            "#   tuneyard validate FILE     checks it",
            "#   tuneyard plan FILE         memory, speed, time and cost, before anything starts",
            "#   tuneyard run FILE          on this machine; `tuneyard submit FILE` gives it to a hub",
            "apiVersion: tuneyard.dev/v1alpha1",
            "kind: JobSpec",
            f"metadata: {{name: {_yaml(self.name)}}}",
            "spec:",
            "  tasks:",
            "  - name: train",
            "    train:",
            "      # A Hugging Face name, a folder, or the URI of a model folder. Larger ones learn more: `tuneyard plan` says what fits.",
            f"      model: {{name: {_yaml(self.model)}}}",
            f"      # {_TEACHES[self.format]}.",
            f"      objective: {_OBJECTIVES[self.format]}",
        ]

    def _data(self) -> list[str]:
        lines = ["      data:", f"        source: {_yaml(self.source)}", f"        format: {self.format}"]
        for name, value, why in self.reading.fields():
            lines.append(f"        {name}: {_written(value)}{f'   # {why}' if why else ''}")
        lines.append(f"        maxLength: {self.max_length}   # tokens per row: {self.length_why}")
        if self.pack:
            lines.append("        pack: true   # samples share rows, without attention across them: no time is spent on padding")
        if self.validation_fraction:
            lines.append(f"        validationFraction: {self.validation_fraction:g}   # held out, to measure the loss on unseen samples")
        else:
            lines.append("        # validationFraction: 0.05   # too few samples here to hold some out")
        if self.max_bad_fraction > _TOLERATED_BAD:
            lines.append(
                f"        maxBadFraction: {self.max_bad_fraction:g}   # tolerated share of bad rows: `tuneyard data inspect` shows them"
            )
        return lines

    def _method(self) -> list[str]:
        return [
            "      # Adapters beside frozen weights: little memory. Others: {full: {}}, {qlora: {rank: 16}}, {dora: {rank: 16}}.",
            "      method: {lora: {rank: 16}}",
            f"      optimizer: {{learningRate: {self.learning_rate:g}}}   # for adapters{self._by_width}; about a tenth of it for `full`",
            f"      batch: {{global: {self.batch}}}   # rows per step, over all workers",
            f"      epochs: {self.epochs}",
        ]

    def _rest(self) -> list[str]:
        return [
            "    # Where it may run, and on how many workers; without it: this machine, or what the hub finds.",
            "    # resources: {sku: [h100-80gb, a100-80gb], workers: auto}",
            "  # Score what was trained, on rows with a prompt and the expected answer that are not among the rows above:",
            "  # - name: judge",
            "  #   score:",
            "  #     model: {from: train}",
            f"  #     data: {{source: holdout.jsonl, prompt: {_yaml(self.asked)}, reference: {_yaml(self.answered)}}}",
            "  #     metrics: [exact_match, rouge_l, perplexity]",
        ]


def propose(
    found: Inspection,
    *,
    source: str,
    model: str | None,
    reading: Reading,
    tokens: Sequence[int] = (),
    config: Mapping[str, Any] | None = None,
) -> Proposal:
    """Settings for inspected data with samples and a known format. `source`: the data's name in the JobSpec. `tokens`: of some samples;
    empty: they are estimated from characters. `config`: config.json of the model; None: it is not known.
    """
    positions, width = positions_of(config or {}), width_of(config or {})
    max_length, why, cut = _length(found, sorted(tokens))
    if positions is not None and positions < max_length:
        max_length, why = positions, f"the positions of the model; {why}"
    pack, rows = _rows(found, max_length, sorted(tokens))
    batch = next((size for size in (32, 16, 8) if rows >= _STEPS_AN_EPOCH * size), 4)
    bad = found.bad / (found.bad + found.samples)
    validation = 0.0 if found.samples < 100 else 0.05 if found.samples < 10_000 else 0.01
    notes = [*found.notes, *cut, *filter(None, [found.false_labels])]
    if bad > _TOLERATED_BAD:
        and_so = f"; {found.advice}" if found.advice else ""
        notes.append(f"{found.bad:,} of {found.bad + found.samples:,} rows cannot be used: {one_of_each(found.bad_examples)}{and_so}")
    return Proposal(
        name=_job_name(source),
        source=source,
        model=model or _MODELS[found.format],
        format=found.format,
        reading=reading,
        asked=found.roles.get("prompt", "question"),
        answered=found.roles.get("completion", "answer"),
        rows=found.samples,
        complete=found.complete,
        max_length=max_length,
        length_why=why,
        pack=pack,
        validation_fraction=validation,
        max_bad_fraction=_above(bad),
        learning_rate=_learning_rate(found.format, width, str((config or {}).get("model_type", ""))),
        width=width,
        batch=batch,
        epochs=_epochs(found.format, rows * (1 - validation) / batch),
        notes=notes,
    )


def _rows(found: Inspection, max_length: int, tokens: Sequence[int]) -> tuple[bool, int]:
    """Packing of samples into rows, and the number of rows. Too few rows make too few steps."""
    assert found.characters is not None
    typical = tokens[len(tokens) // 2] if tokens else found.characters.p50 / _CHARACTERS_PER_TOKEN
    packed = int(found.samples * typical / max_length)
    if found.format == "text" or (found.format != "preference" and packed >= _STEPS_AN_EPOCH * 8):
        return True, packed
    return False, found.samples


def _epochs(format: str, steps: float) -> int:
    """Epochs of `steps` steps each. Less data are read more often."""
    whole = max(1, math.floor(steps))
    least = min(_MOST_EPOCHS, math.ceil(_STEPS / whole))
    if format == "preference":
        return least
    usual = 1 if steps >= 2 * _STEPS else 3
    more = 1 if format == "text" else min(_EPOCHS_OF_ANSWERS, math.ceil(_STEPS_OF_ANSWERS / whole))
    return max(usual, more, least)


def _learning_rate(format: str, width: int | None, model_type: str) -> float:
    """In two figures."""
    rate = _RATE_OF_PREFERENCE if format == "preference" else _RATE
    exponent = _EXPONENT_OF_QWEN if model_type.startswith("qwen") else _EXPONENT
    return float(f"{rate * (_RATED_WIDTH / (width or _RATED_WIDTH)) ** exponent:.1e}")


def _length(found: Inspection, tokens: Sequence[int]) -> tuple[int, str, list[str]]:
    """maxLength, its reason, and the remark on samples that are cut."""
    assert found.characters is not None
    if found.format == "text":
        return 2048, "longer text is cut into pieces of that length", []
    longest = tokens[math.ceil(0.99 * len(tokens)) - 1] if tokens else found.characters.p99 / _CHARACTERS_PER_TOKEN
    fits = next((length for length in _LENGTHS if longest <= length), _LENGTHS[-1])
    why = f"99 % of samples have at most {f'{longest:,} tokens' if tokens else f'{found.characters.p99:,} characters'}"
    if fits == _LENGTHS[0]:
        why = f"the smallest that is proposed; {why}"
    cut = [f"samples longer than {fits} tokens are cut: raise data.maxLength where memory allows"] if longest > fits else []
    return fits, why, cut


def _above(bad: float) -> float:
    """The tolerated share of bad rows: twice the share that was found, in steps of a hundredth."""
    return min(TOLERATED_AT_MOST, round(2 * bad + 0.005, 2)) if bad > _TOLERATED_BAD else _TOLERATED_BAD


def _job_name(source: str) -> str:
    """A DNS label from the name of the data."""
    stem = PurePosixPath(source.rstrip("/").partition("://")[2] or source).name.split(".")[0]
    return re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:50].strip("-") or "train"


def _written(value: Any) -> str:
    """The value of a field on one line."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_yaml(key)}: {_yaml(each)}' for key, each in value.items())}}}"
    return "true" if value is True else _yaml(str(value))


def _yaml(text: str) -> str:
    """A string as YAML reads it back, inside braces too: plain where that is safe."""
    plain = re.fullmatch(r"[A-Za-z_./][\w./+@-]*(://[\w./+@-]+)?", text) and text.lower() not in _WORDS
    return text if plain else yaml.safe_dump(text, default_style='"', allow_unicode=True, width=math.inf).rstrip("\n")


_WORDS: Any = frozenset(("null", "true", "false", "yes", "no", "on", "off", "y", "n", ".", ".inf", ".nan"))
