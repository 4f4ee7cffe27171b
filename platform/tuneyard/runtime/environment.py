"""The environment of a job: its variables, with secrets from this process's environment.

Values of secrets exist in the environment of processes only. They reach no log, event, report or file that Tuneyard writes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tuneyard.api import BadInput, EnvVar
from tuneyard.api.secrets import redact

_HIDDEN = "***"
_SHORTEST_LINE = 8


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
        for line in value.splitlines() if "\n" in value else ():  # of a key in PEM, commands print single lines
            if len(line.strip()) >= _SHORTEST_LINE:
                text = text.replace(line.strip(), _HIDDEN)
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
def environment(values: Mapping[str, str | None]) -> Iterator[None]:
    """Set variables of this process (None: unset them) until the context ends. Ray's processes started meanwhile inherit them."""
    before = {name: os.environ.get(name) for name in values}
    set_variables(values)
    try:
        yield
    finally:
        set_variables(before)


def set_variables(values: Mapping[str, str | None]) -> None:
    """Set variables of this process, or unset those whose value is None."""
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
