"""`tuneyard chat`: a chat with a model, in the terminal or through a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from tuneyard.api import BadInput
from tuneyard.cli.chat.loaded import loaded_model
from tuneyard.cli.chat.session import ChatEnded, Session, tell
from tuneyard.cli.chat.voices import Asked, LocalVoices
from tuneyard.cli.generate import MaxTokensOption, SeedOption, TaskOption, TemperatureOption, check_temperature

if TYPE_CHECKING:
    from tuneyard.cli.chat.voices import Voices


def chat(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="output of a job or task, folder or URI of a model or adapter, or Hugging Face name; with --url a name of the server",
        ),
    ] = None,
    url: Annotated[str | None, typer.Option(metavar="URL", help="a server with OpenAI's API answers, such as `tuneyard serve`")] = None,
    task: TaskOption = None,
    system: Annotated[str, typer.Option(metavar="TEXT", help="the system text")] = "",
    plain: Annotated[bool, typer.Option("--plain", help="no chat template: each line is a prompt of its own")] = False,
    max_tokens: MaxTokensOption = 1024,
    temperature: TemperatureOption = 0.0,
    seed: SeedOption = None,
    api_key: Annotated[
        str | None, typer.Option(metavar="KEY", envvar="TUNEYARD_API_KEY", show_envvar=True, help="the key of the server at --url")
    ] = None,
) -> int:
    """Chat with a model that was trained here, or with any other.

    The model is loaded once, into this process. /base and /tuned switch what training has changed off and on, /compare shows the answers
    of both, /help lists all commands. Through a pipe, each line is a turn, and the exit code is 1 if one was not answered.

    Example: tuneyard chat runs/first
    """
    check_temperature(temperature)
    asked = Asked(max_tokens, temperature, seed)
    with _voices(model, url, task, api_key, plain=plain) as voices:
        session = Session(voices, asked, system)
        if sys.stdin.isatty():
            tell("/help lists the commands; Ctrl-C ends an answer, Ctrl-D the chat")
        with suppress(ChatEnded):
            for line in _lines():
                session.take(line)
    return 1 if session.failed and not sys.stdin.isatty() else 0


@contextmanager
def _voices(model: str | None, url: str | None, task: str | None, key: str | None, *, plain: bool) -> Iterator[Voices]:
    """Who answers. Raises BadInput where no model is named, or none is found."""
    if url is not None:
        if task is not None:
            raise BadInput("--task names a task of a run, and --url a server", "leave one of them out")
        from tuneyard.cli.chat.served import ServedVoices

        served = ServedVoices(url, model, key, chat=not plain)
        tell(str(served))
        yield served
        return
    if model is None:
        raise BadInput("no model is named", "name a run, such as runs/first, or a server: --url URL")
    with loaded_model(model, task, "chat", chat=False if plain else None) as loaded:
        tell(f"{loaded.found.name}: {loaded.found.what}")
        yield LocalVoices(loaded)


def _lines() -> Iterator[str]:
    """Lines of the person, or of a pipe, up to Ctrl-D. Ctrl-C at the prompt ends nothing."""
    if not sys.stdin.isatty():
        yield from sys.stdin
        return
    with suppress(ImportError):
        import readline  # noqa: F401 - input() then edits lines, and remembers them
    while True:
        try:
            yield input("> ")
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print()
            tell("Ctrl-D or /quit ends the chat")
