"""Patterns for names, as `nightly-*`, in SQL: `*` stands for any characters and `?` for one, and case counts on every database."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction

WILDCARDS = {"*": "%", "?": "_"}
_ESCAPE = "!"


def has_pattern(text: sa.ColumnElement[str], pattern: str) -> sa.ColumnElement[bool]:
    """Whether a text has a pattern."""
    return matches(text, _like(pattern), _glob(pattern))


def _like(pattern: str) -> str:
    """A pattern of SQL's LIKE for one with `*` and `?`."""
    escaped = "".join(_ESCAPE + each if each in ("%", "_", _ESCAPE) else each for each in pattern)
    return "".join(WILDCARDS.get(each, each) for each in escaped)


def _glob(pattern: str) -> str:
    """A pattern of SQLite's GLOB, in which `[` begins a set of characters."""
    return pattern.replace("[", "[[]")


class matches(GenericFunction[bool]):  # noqa: N801 - named as a function of SQL
    """Whether a text has a pattern, in the same case: that of LIKE, or that of GLOB on SQLite, whose LIKE is of either case."""

    type = sa.Boolean()
    inherit_cache = True


@compiles(matches, "postgresql")
def _like_of_postgresql(element: Any, compiler: Any, **options: Any) -> str:
    text, like, _ = element.clauses
    return f"({compiler.process(text, **options)} LIKE {compiler.process(like, **options)} ESCAPE '{_ESCAPE}')"


@compiles(matches, "sqlite")
def _glob_of_sqlite(element: Any, compiler: Any, **options: Any) -> str:
    text, _, glob = element.clauses
    return f"({compiler.process(text, **options)} GLOB {compiler.process(glob, **options)})"
