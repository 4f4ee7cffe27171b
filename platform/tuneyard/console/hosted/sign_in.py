"""The way in with a token: the page that takes it, and the way out."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from tuneyard.console.hosted.sessions import COOKIE, MOST_COOKIES
from tuneyard.console.hosted.tokens import TokenReaders
from tuneyard.console.pages import page
from tuneyard.console.safety import form_of, is_https, local_target


class SignIn:
    def __init__(self, readers: TokenReaders) -> None:
        self._readers = readers

    def router(self) -> APIRouter:
        router = APIRouter(default_response_class=HTMLResponse)
        router.add_api_route("/login", self.asked, methods=["GET"])
        router.add_api_route("/login", self.enter, methods=["POST"])
        router.add_api_route("/logout", self.leave, methods=["POST"])
        return router

    async def asked(self, request: Request) -> Response:
        return page(request, "login.html", back="/")

    async def enter(self, request: Request) -> Response:
        """Take a token that the API server accepts, and go back to the page that was asked for."""
        fields = await form_of(request)
        token = fields.get("bearer", "").strip().removeprefix("Bearer ").strip()
        cookies = self._readers.sessions.cookies(token)
        await run_in_threadpool(self._readers.user_of, token)
        target = local_target(fields.get("back", "/"))
        answer = RedirectResponse("/" if target.startswith(("/login", "/logout")) else target, 303)
        _forget(answer)
        for name, value in cookies.items():
            answer.set_cookie(name, value, httponly=True, samesite="strict", secure=is_https(request.scope))
        return answer

    async def leave(self, request: Request) -> Response:
        await form_of(request)
        answer = RedirectResponse("/login", 303)
        _forget(answer)
        return answer


def _forget(answer: Response) -> None:
    for number in range(MOST_COOKIES):
        answer.delete_cookie(f"{COOKIE}_{number}", httponly=True, samesite="strict")
