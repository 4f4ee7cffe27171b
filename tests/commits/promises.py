"""What a fence promises, held against a history of attempts. Reads the entries for itself: no code is shared with the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.commits.interleavings import History, Told


@dataclass(frozen=True)
class _Model:
    """A state of the log, read from its entries without the log's code."""

    token: int = 0
    closed: bool = True
    commits: tuple[tuple[int, int, str], ...] = ()


def violations(history: History) -> list[str]:
    """Every promise that was broken, in words."""
    models, found = _replayed(history.entries)
    born = [turn for _, (turn, _) in sorted(history.created.items())]
    commits: dict[str, int] = {}
    for number, entry in enumerate(history.entries, start=1):
        if entry["kind"] == "commit" and commits.setdefault(entry["sha256"], number) != number:
            found.append(f"{entry['sha256']} is in the log twice")
    fenced: set[int] = set()
    doubted: set[str] = set()
    for told in history.told:
        label = f"{told.who}, token {told.token}, {told.call} {told.key} at turn {told.ended}"
        if told.outcome == "doubt":
            doubted.add(told.key)
        elif told.outcome == "fenced":
            fenced.add(told.token)
            if not _lost(history.entries, born, told):
                found.append(f"{label}: fenced, and nobody has taken over")
            if told.key in commits and told.key not in doubted:
                found.append(f"{label}: fenced, and its commit is in the log")
        else:
            if told.token in fenced and told.call != "close":
                found.append(f"{label}: succeeded after it was fenced")
            found += [f"{label}: {fault}" for fault in _wrong(told, history.entries, commits, models, born)]
    return history.broken + found


def _replayed(entries: Sequence[Mapping[str, Any]]) -> tuple[list[_Model], list[str]]:
    """The state after each number of entries, and what is wrong with the entries themselves."""
    model, models, found = _Model(), [_Model()], []
    for number, entry in enumerate(entries, start=1):
        if entry["kind"] == "open":
            model = _Model(number, False, model.commits)
        else:
            if entry["token"] != model.token or model.closed:
                found.append(f"entry {number} is of token {entry['token']}, and the log was held by {model.token}")
            if entry["kind"] == "close":
                model = _Model(model.token, True, model.commits)
            elif entry["kind"] == "restart":
                model = _Model(model.token, model.closed, tuple(commit for commit in model.commits if commit[0] <= entry["step"]))
            else:
                if model.commits and entry["step"] <= model.commits[-1][0]:
                    found.append(f"entry {number}: step {entry['step']} is not above {model.commits[-1][0]}")
                model = _Model(model.token, model.closed, (*model.commits, (entry["step"], entry["token"], entry["sha256"])))
        models.append(model)
    return models, found


def _lost(entries: Sequence[Mapping[str, Any]], born: Sequence[int], told: Told) -> bool:
    """Whether the log was no longer held by who was told so."""
    seen = [(number, entry) for number, entry in enumerate(entries, start=1) if born[number - 1] <= told.ended]
    return any(number > told.token and (entry["kind"] == "open" or entry["kind"] == "close") for number, entry in seen)


def _wrong(
    told: Told, entries: Sequence[Mapping[str, Any]], commits: Mapping[str, int], models: Sequence[_Model], born: Sequence[int]
) -> Iterator[str]:
    """What is wrong with a call that was told that all went well."""
    if told.call == "open" and (entries[told.token - 1]["kind"] != "open" or entries[told.token - 1]["holder"]["who"] != told.who):
        yield "the token is not its own"
    if told.call == "commit":
        number = commits.get(told.key)
        if number is None:
            yield "the commit is not in the log"
        elif entries[number - 1]["token"] != told.token:
            yield "the commit is under another token"
        elif told.key not in {key for _, _, key in models[-1].commits} and not any(
            entry["kind"] == "restart" and entry["step"] < told.step for entry in entries[number:]
        ):
            yield "the commit does not count in the end, and no restart voided it"
    state = told.state
    if state is None:
        return
    before, until = sum(turn <= told.began for turn in born), sum(turn <= told.ended for turn in born)
    if not before <= state.entries <= until:
        yield f"saw {state.entries} entries, and there were {before} before it began and {until} when it ended"
    elif _Model(state.token, state.closed, tuple((c.step, c.token, c.sha256) for c in state.commits)) != models[state.entries]:
        yield f"saw another history than the one of the first {state.entries} entries"
    if told.call != "read" and (state.token != told.token or state.closed):
        yield f"went on while the log was held by {state.token}"
