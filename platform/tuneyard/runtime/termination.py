"""Writes the termination message of a container whose `setup` failed, without secrets.

The container itself runs `python -m tuneyard.runtime.termination LOG CODE COMMAND`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tuneyard.runtime.environment import hide

MESSAGE = Path("/dev/termination-log")
SECRETS_VARIABLE = "TUNEYARD_SECRETS"
_SHOWN_LINES = 15
_LONGEST = 4000
"""Characters of the message. Kubernetes keeps 4,096 bytes."""


def last_words(log: str, code: str, command: str, environment: dict[str, str]) -> str:
    """The message about a setup command that ended with `code`. Values of the variables in TUNEYARD_SECRETS are hidden."""
    names = environment.get(SECRETS_VARIABLE, "").split(",")
    secrets = [environment[name] for name in names if environment.get(name)]
    last = "\n".join(line for line in log.splitlines()[-_SHOWN_LINES:])
    ended = f"ended with exit code {code}" if code != "0" else "called exit, which ends the shell that all commands share"
    return hide(f"the setup command `{command}` {ended}:\n{last}", secrets)[-_LONGEST:]


def main(log: str, code: str, command: str) -> None:
    words = last_words(Path(log).read_text(errors="replace"), code, command, dict(os.environ))
    print(words, file=sys.stderr)
    MESSAGE.write_text(words)


if __name__ == "__main__":
    main(*sys.argv[1:])
