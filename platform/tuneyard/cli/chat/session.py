"""A chat: its turns, the model that answers them, and the commands that begin with a slash."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from tuneyard.api import BadInput, TuneyardError
from tuneyard.cli.chat.voices import Asked, Voice, Voices
from tuneyard.data.visible import visible

_TUNED, _BASE = "tuned", "base"
_PLAIN = "this model takes no chats: each line is a prompt of its own, without the lines before it"


class ChatEnded(Exception):
    """The person has ended the chat."""


class Session:
    """A chat. Answers go to stdout, everything else to stderr."""

    def __init__(self, voices: Voices, asked: Asked, system: str = "") -> None:
        self._voices, self._asked, self._system = voices, asked, system
        self._speakers, self._history = [_TUNED], list[dict[str, Any]]()
        self.failed = 0
        """Turns that were not answered."""
        if not voices.tuned().chats:
            tell(_PLAIN)
            if system:
                raise BadInput("--system has no place in prompts that are no chats", "leave it out, and write the text into each prompt")

    def take(self, line: str) -> None:
        """One line: a command, or a turn of the user. An error is told, and the chat goes on. Raises ChatEnded."""
        line = line.strip()
        if not line:
            return
        try:
            if line.startswith("/") and not line.startswith("//"):
                self._command(line)
            else:
                self._turn(line.removeprefix("/") if line.startswith("//") else line)
        except TuneyardError as error:
            self.failed += 1
            tell(f"error: {error.cause}\nnext: {error.next_step}")

    def _turn(self, text: str) -> None:
        """Both models see the same chat, whose answers are those of the first that speaks."""
        said = ""
        try:
            for place, name in enumerate(self._speakers):
                voice = self._voice(name)
                if len(self._speakers) > 1:
                    print(f"[{name}] ", end="", flush=True)
                answer = voice.answer(self._prompt(text, voice), _write, self._asked)
                print(flush=True)
                said = said if place else answer
        except KeyboardInterrupt:
            print(flush=True)
            tell("ended; the chat goes on as if this turn had not been")
            return
        self._history += [{"role": "user", "content": text}, {"role": "assistant", "content": said}]

    def _prompt(self, text: str, voice: Voice) -> str | list[dict[str, Any]]:
        if not voice.chats:
            return text
        system = [{"role": "system", "content": self._system}] if self._system else []
        return [*system, *self._history, {"role": "user", "content": text}]

    def _voice(self, name: str) -> Voice:
        return self._voices.tuned() if name == _TUNED else self._voices.base()

    # Commands

    def _command(self, line: str) -> None:
        name, _, rest = line[1:].partition(" ")
        command = COMMANDS.get(name)
        if command is None:
            near = get_close_matches(name, COMMANDS, n=1)
            advice = f"did you mean /{near[0]}?" if near else "/help lists them; a turn that begins with a slash is written with two: //"
            raise BadInput(f"there is no command /{name}", advice)
        if bool(rest.strip()) and not command.argument:
            raise BadInput(f"/{name} takes nothing behind it", f"write /{name} alone")
        command.act(self, rest.strip())

    def reset(self, _rest: str) -> None:
        self._history.clear()
        tell("the chat begins anew")

    def set_system(self, text: str) -> None:
        if text and not self._voices.tuned().chats:
            raise BadInput("a system text has no place in prompts that are no chats", "write it into each prompt")
        self._system = text
        self._history.clear()
        tell("the system text is set, and the chat begins anew" if text else "there is no system text, and the chat begins anew")

    def speak(self, speakers: list[str]) -> None:
        for name in speakers:
            self._voice(name)  # a base that is not there is refused now
        self._speakers = speakers
        tell(" and ".join(f"the {name} model" for name in speakers) + (" answer" if len(speakers) > 1 else " answers"))

    def set_tools(self, path: str) -> None:
        self._asked = replace(self._asked, tools=_tools(path) if path else ())
        tell(f"the model sees {len(self._asked.tools)} tools")

    def help(self, _rest: str) -> None:
        width = max(len(f"/{name} {command.argument}") for name, command in COMMANDS.items())
        tell("\n".join(f"  {f'/{name} {command.argument}':<{width}}  {command.help}" for name, command in COMMANDS.items()))
        tell("Ctrl-C ends an answer, Ctrl-D the chat. A turn that begins with a slash is written with two: //")

    def quit(self, _rest: str) -> None:
        raise ChatEnded


class Command(NamedTuple):
    """A command of a chat. `argument`: what follows it, for people; empty: nothing may."""

    help: str
    act: Callable[[Session, str], None]
    argument: str = ""


COMMANDS = {
    "reset": Command("begin the chat anew; the system text stays", Session.reset),
    "system": Command("set the system text, or without TEXT remove it, and begin anew", Session.set_system, "[TEXT]"),
    "base": Command("the base model answers, without what training has changed", lambda session, _: session.speak([_BASE])),
    "tuned": Command("the tuned model answers, as at the start", lambda session, _: session.speak([_TUNED])),
    "compare": Command("both answer each turn; the chat goes on from the tuned model's", lambda session, _: session.speak([_TUNED, _BASE])),
    "tools": Command("show the model the tools of a JSON file, or without FILE none", Session.set_tools, "[FILE]"),
    "help": Command("this list", Session.help),
    "quit": Command("end the chat", Session.quit),
}


def _tools(path: str) -> list[Any]:
    """A list of tools. Raises BadInput for a file that holds none."""
    try:
        tools = json.loads(Path(path).expanduser().read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(
            f"{path} holds no tools: {error}", "give a JSON file with a list of functions, as OpenAI's API takes them"
        ) from error
    if not isinstance(tools, list) or not tools or not all(isinstance(tool, dict) for tool in tools):
        raise BadInput(f"{path} holds no list of tools", "give a JSON file with a list of functions, as OpenAI's API takes them")
    return tools


def _write(text: str) -> None:
    sys.stdout.write(visible(text))
    sys.stdout.flush()


def tell(text: str) -> None:
    """Say something beside the chat."""
    print(visible(text), file=sys.stderr, flush=True)
