"""The application: the guard, the static files, the pages of a source, and errors as pages."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tuneyard import tracking
from tuneyard.api import BadInput, StorageError, TuneyardError
from tuneyard.api.secrets import redact
from tuneyard.cluster import NotAllowed, NotLoggedIn
from tuneyard.console.pages import THEME, THEMES, failure
from tuneyard.console.safety import Guard, GuardRules, form_of, local_target

_LOG = logging.getLogger(__name__)
_STATIC = Path(__file__).parent / "static"
_FILES = {
    "console.css": (_STATIC / "console.css", "text/css"),
    "console.js": (_STATIC / "console.js", "text/javascript"),
    "htmx.min.js": (_STATIC / "htmx.min.js", "text/javascript"),
    "icon.svg": (_STATIC / "icon.svg", "image/svg+xml"),
    # The curves of a report and their colours: drawn and styled in one place.
    "report.css": (Path(tracking.__file__).parent / "templates" / "report.css", "text/css"),
}
_STATUSES: tuple[tuple[type[TuneyardError], int], ...] = ((BadInput, 400), (StorageError, 503), (NotLoggedIn, 401), (NotAllowed, 403))
_NOT_FOUND = ("there is no such page, or you may not see it", "start at the overview")


class Source(Protocol):
    """The data behind the pages."""

    @property
    def label(self) -> str:
        """The origin of the data, for the foot of each page."""
        ...

    @property
    def navigation(self) -> Sequence[tuple[str, str]]:
        """Path and title of the main pages."""
        ...

    def router(self) -> APIRouter: ...

    def close(self) -> None: ...


class Hidden(Exception):
    """An object that does not exist, or that the reader may not see. The page is the same for both."""

    def __init__(self, cause: str = _NOT_FOUND[0], next_step: str = _NOT_FOUND[1]) -> None:
        super().__init__(cause)
        self.cause = cause
        self.next_step = next_step


def create_app(source: Source, rules: GuardRules | None = None, *, sign_in: APIRouter | None = None) -> FastAPI:
    """The console over one source. `rules`: of requests; default: those of a person's own machine. `sign_in`: the pages /login and
    /logout, where readers log in."""
    # A redirect to the path without its last slash would hold the Host header, and http behind a proxy with TLS.
    app = FastAPI(title="Tuneyard console", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.state.source = source
    app.state.sign_in = sign_in is not None
    app.include_router(source.router())
    if sign_in is not None:
        app.include_router(sign_in)
    app.add_api_route("/static/{name}", _static, methods=["GET"])
    app.add_api_route("/theme", _theme, methods=["POST"])
    app.add_exception_handler(TuneyardError, _failed)
    app.add_exception_handler(Hidden, _hidden)
    app.add_exception_handler(SQLAlchemyError, _no_database)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _bad_request)
    app.add_middleware(_Bugs)
    app.add_middleware(Guard, rules=rules or GuardRules())
    return app


def _static(name: str) -> Response:
    if name not in _FILES:
        raise HTTPException(404)
    path, kind = _FILES[name]
    return FileResponse(path, media_type=kind, headers={"Cache-Control": "no-cache"})


async def _theme(request: Request) -> Response:
    """Keep the reader's choice of light or dark in a cookie, and go back to the page."""
    fields = await form_of(request)
    answer = RedirectResponse(local_target(fields.get("back", "/")), 303)
    theme = fields.get("theme", "auto")
    answer.set_cookie(THEME, theme if theme in THEMES else "auto", max_age=365 * 86_400, samesite="strict", httponly=True)
    return answer


async def _failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, TuneyardError)
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 502)
    return failure(request, status, redact(error.cause), redact(error.next_step))


async def _hidden(request: Request, error: Exception) -> Response:
    assert isinstance(error, Hidden)
    return failure(request, 404, error.cause, error.next_step)


async def _no_database(request: Request, error: Exception) -> Response:
    reason = redact(str(getattr(error, "orig", None) or error)).strip().partition("\n")[0]
    return failure(request, 503, f"the history does not answer: {reason}", "check that its database is up, then reload this page")


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return failure(request, 404, *_NOT_FOUND)
    return failure(request, error.status_code, str(error.detail), "start at the overview")


async def _bad_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:])
    return failure(request, 400, f"{where}: {first['msg']}", "correct the address, or start at the overview")


class _Bugs:
    """ASGI middleware inside the guard: a bug is a page with the guard's headers, and a stack trace on the terminal."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def noted(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception as error:  # noqa: BLE001 - the last handler
            _LOG.error("bug in the console", exc_info=error)
            if not started and scope["type"] == "http":
                cause = f"bug in Tuneyard: {type(error).__name__}"
                answer = failure(Request(scope), 500, cause, "report it with the stack trace that the terminal shows")
                await answer(scope, receive, send)
