"""Renders pages: one Jinja environment in which every text is escaped, and every control character visible."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from tuneyard import __version__
from tuneyard.console import words
from tuneyard.tracking.formats import duration, gigabytes, number, percent

THEMES = ("auto", "light", "dark")
THEME = "tuneyard_theme"


@cache
def environment() -> Environment:
    made = Environment(
        extensions=["jinja2.ext.loopcontrols"],
        loader=PackageLoader("tuneyard.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=words.printed,
    )
    own = {"name": words.name, "path": words.path, "hours": words.hours}
    made.filters.update({**own, "number": number, "percent": percent, "duration": duration, "gigabytes": gigabytes})
    made.globals.update({"job_url": words.job_url, "query": words.query, "when": words.when, "version": __version__})
    return made


def render(template: str, **values: Any) -> str:
    """A template as text. `now` is set where the caller gives none."""
    return environment().get_template(template).render(**{"now": datetime.now(UTC), **values})


def page(request: Request, template: str, *, status: int = 200, headers: Mapping[str, str] | None = None, **values: Any) -> HTMLResponse:
    """A whole page for this reader: with the navigation of the console's source, the theme and the token for forms."""
    theme = request.cookies.get(THEME, "auto")
    shell = {
        "source": request.app.state.source,
        "sign_in": request.app.state.sign_in,
        "theme": theme if theme in THEMES else "auto",
        "token": request.state.token,
        "here": f"{request.url.path}{'?' + request.url.query if request.url.query else ''}",
        "path_here": request.url.path,
    }
    return HTMLResponse(render(template, **shell, **values), status, dict(headers or {}))


def failure(request: Request, status: int, cause: str, next_step: str) -> HTMLResponse:
    """An error as a page, with its cause and the next step."""
    return page(request, "error.html", status=status, code=status, cause=cause, next_step=next_step)
