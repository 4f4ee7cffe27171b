"""`tuneyard generate`: answers of a trained model to prompts."""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from tuneyard.api import BadInput
from tuneyard.data.visible import visible
from tuneyard.extras import need


def generate(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="output folder or URI of the job")],
    prompt: Annotated[
        list[str] | None, typer.Argument(metavar="PROMPT", help="prompts to answer; default: the lines of standard input")
    ] = None,
    task: Annotated[str | None, typer.Option(metavar="NAME", help="the train task; default: the last that has succeeded")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="tokens of an answer, at most")] = 256,
    temperature: Annotated[float, typer.Option(min=0, max=100, help="0: always the likeliest token; from 0.01 on: samples")] = 0.0,
    seed: Annotated[int | None, typer.Option(min=0, max=2**32 - 1, help="makes sampling repeatable")] = None,
) -> None:
    """Print the answers of a trained model to prompts.

    The prompt is rendered as the samples of the training were: by the chat template, or as it is. For many prompts, and for metrics, add
    a score task to the job.

    Example: tuneyard generate runs/first "What is 2 + 2?"
    """
    if 0 < temperature < 0.01:
        raise BadInput(f"--temperature {temperature:g}: too small to sample with", "use 0, or 0.01 and more")
    from tuneyard.api.local_files import looks_like_path
    from tuneyard.runtime.models import base_of_adapter
    from tuneyard.runtime.trained import find_trained

    need("train", "tuneyard generate")
    found = find_trained(folder, task)
    if found.adapter_uri:
        base_of_adapter(found.adapter_uri)  # a base that is not there, or has changed, is refused
    # transformers imports it, and its import warns of kernels for 4-bit weights that it would download.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    from tuneyard.scoring.generation import Generator
    from tuneyard.storage import fetch_folder

    with tempfile.TemporaryDirectory(prefix="tuneyard-generate-") as cache:
        model = found.model_uri
        if looks_like_path(model):  # else a Hugging Face name
            model = str(fetch_folder(model, Path(cache)))
        adapter = str(fetch_folder(found.adapter_uri, Path(cache))) if found.adapter_uri else None
        generator = Generator(model, adapter, chat=None)
        below = f"an adapter on {found.model_uri}" if found.adapter_uri else "whole weights"
        how = "prompts become one message of a user" if generator.chats else "prompts are sent as they are"
        print(f"{found.task}: {below}; {how}", file=sys.stderr)
        for text in prompt or _lines():
            generator.answer(text, _write, max_tokens=max_tokens, temperature=temperature, seed=seed)
            typer.echo()


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
        raise BadInput("there is no prompt", 'write it behind DIR, in quotes: tuneyard generate DIR "What is 2 + 2?"')
