"""The environment of a job: its variables, with secrets from this process's environment, and its `setup` commands.

Values of secrets exist in the environment of processes only. They reach no log, event, report or file that Tuneyard writes.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tuneyard.api import BadInput, EnvVar, JobFailed
from tuneyard.api.secrets import redact

SETUP_LOG = "setup.log"
_SHOWN_LINES = 15
_HIDDEN = "***"


def resolve_environment(variables: Sequence[EnvVar], environment: Mapping[str, str]) -> dict[str, str]:
    """Name -> value of the job's variables; `secretKeyRef.key` is looked up in `environment`.

    Raises BadInput that names every missing secret, unless it is optional.
    """
    values: dict[str, str] = {}
    missing: list[str] = []
    for variable in variables:
        if variable.value_from is None:
            values[variable.name] = variable.value or ""
            continue
        reference = variable.value_from.secret_key_ref
        if reference.key in environment:
            values[variable.name] = environment[reference.key]
        elif not reference.optional:
            missing.append(f"{reference.key} (for {variable.name})" if reference.key != variable.name else reference.key)
    if missing:
        raise BadInput(
            f"the job's secrets are not in the environment: {', '.join(missing)}",
            f"for local runs export them first, such as: export {missing[0].split()[0]}=…",
        )
    return values


def secret_values(variables: Sequence[EnvVar], values: Mapping[str, str]) -> list[str]:
    """Values that came from secrets, and must never be shown."""
    return [values[v.name] for v in variables if v.value_from is not None and values.get(v.name)]


def hide(text: str, secrets: Sequence[str]) -> str:
    """`text` with these values, and other texts that look like secrets, replaced by `***`."""
    for value in secrets:
        text = text.replace(value, _HIDDEN)
    return redact(text)


def scrub(log: Path, secrets: Sequence[str]) -> None:
    """Hide these values in a file that other programs have written."""
    if not secrets:
        return
    text = log.read_text(errors="replace")
    clean = hide(text, secrets)
    if clean != text:
        log.write_text(clean)


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process until the context ends. Ray's processes started meanwhile inherit them."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def run_setup(commands: Sequence[str], *, log: Path, secrets: Sequence[str] = ()) -> None:
    """Run the job's `setup` commands in a shell, in order, in this process's environment. `log` gets their output.

    Raises JobFailed with the last lines of the first command that does not exit 0.
    """
    if not commands:
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    for command in commands:
        done = subprocess.run(["/bin/bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        shown = hide(done.stdout, secrets)
        with log.open("a") as file:
            file.write(f"$ {hide(command, secrets)}\n{shown}\n")
        if done.returncode != 0:
            last = "\n".join(shown.splitlines()[-_SHOWN_LINES:])
            raise JobFailed(
                f"the setup command `{hide(command, secrets)}` ended with exit code {done.returncode}" + (f":\n{last}" if last else ""),
                "run that command by hand, correct `setup` in the JobSpec, and start again",
            )
