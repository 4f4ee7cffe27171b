"""`tuneyard generate`: answers of a model to prompts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from tuneyard.api import BadInput
from tuneyard.cli.chat.loaded import loaded_model
from tuneyard.data.visible import visible

TaskOption = Annotated[str | None, typer.Option(metavar="NAME", help="the train task of a job; default: the last that has succeeded")]
MaxTokensOption = Annotated[int, typer.Option(min=1, help="tokens of an answer, at most")]
TemperatureOption = Annotated[float, typer.Option(min=0, max=100, help="0: always the likeliest token; from 0.01 on: samples")]
SeedOption = Annotated[int | None, typer.Option(min=0, max=2**32 - 1, help="makes sampling repeatable")]


def generate(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="output of a job or task, folder or URI of a model or an adapter, or Hugging Face name"),
    ],
    prompt: Annotated[
        list[str] | None, typer.Argument(metavar="PROMPT", help="prompts to answer; default: the lines of standard input")
    ] = None,
    task: TaskOption = None,
    max_tokens: MaxTokensOption = 256,
    temperature: TemperatureOption = 0.0,
    seed: SeedOption = None,
) -> None:
    """Print the answers of a model to prompts.

    The prompt is rendered as the samples of the training were: by the chat template, or as it is. For many prompts, and for metrics, add
    a score task to the job; to keep the model loaded, chat with it or serve it.

    Example: tuneyard generate runs/first "What is 2 + 2?"
    """
    check_temperature(temperature)
    with loaded_model(model, task, "generate") as loaded:
        print(loaded, file=sys.stderr)
        for text in prompt or _lines():
            loaded.generator.answer(text, _write, max_tokens=max_tokens, temperature=temperature, seed=seed)
            typer.echo()


def check_temperature(temperature: float) -> None:
    """Raises BadInput for a temperature that no sampler takes."""
    if 0 < temperature < 0.01:
        raise BadInput(f"--temperature {temperature:g}: too small to sample with", "use 0, or 0.01 and more")


def _write(text: str) -> None:
    sys.stdout.write(visible(text))
    sys.stdout.flush()


def _lines() -> Iterator[str]:
    """Prompts of standard input, asked one by one on a terminal. Raises BadInput without any."""
    count = 0
    while True:
        if sys.stdin.isatty():
            print("prompt> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            break
        if line.strip():
            count += 1
            yield line.strip()
    if not count:
        raise BadInput("there is no prompt", 'write it behind MODEL, in quotes: tuneyard generate MODEL "What is 2 + 2?"')
