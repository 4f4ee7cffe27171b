"""A browser cannot be used against the console: other hosts, other sites, forms without a token."""

from __future__ import annotations

import re

import pytest
from starlette.testclient import TestClient

from tuneyard.console import create_app
from tuneyard.console.local import LocalHistory
from tuneyard.console.safety import local_target

from .conftest import ADDRESS

OWN = {"Origin": ADDRESS, "Sec-Fetch-Site": "same-origin"}


def token_of(client: TestClient) -> str:
    found = re.search(r'name="token" value="([0-9a-f]+)"', client.get("/").text)
    assert found
    return found[1]


@pytest.mark.parametrize(
    "host", ["attacker.example", "attacker.example:7420", "127.0.0.1.attacker.example", "", "[", "10.0.0.1", "127.0.0.2"]
)
def test_a_request_under_another_host_name_is_refused(client: TestClient, host: str) -> None:
    answer = client.get("/", headers={"Host": host})
    assert answer.status_code == 403
    assert "support-bot" not in answer.text


def test_a_request_with_two_host_names_is_refused(client: TestClient) -> None:
    for hosts in (("attacker.example", "127.0.0.1"), ("127.0.0.1", "127.0.0.1")):
        answer = client.get("/jobs", headers=[("Host", host) for host in hosts])
        assert answer.status_code == 400


def test_a_slash_at_the_end_leads_nowhere(client: TestClient) -> None:
    answer = client.get("/jobs/")
    assert (answer.status_code, "location" in answer.headers) == (404, False)


@pytest.mark.parametrize("host", ["127.0.0.1:7420", "localhost:8000", "LOCALHOST", "[::1]:7420"])
def test_names_of_this_machine_are_answered_on_every_port(client: TestClient, host: str) -> None:
    assert client.get("/", headers={"Host": host}).status_code == 200


def test_every_answer_binds_the_browser(client: TestClient) -> None:
    for path in ("/", "/nope", "/static/console.css", "/compare"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self'"), path
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_a_bug_is_a_page_too(source: LocalHistory) -> None:
    app = create_app(source)
    app.add_api_route("/broken", lambda: 1 / 0)
    answer = TestClient(app, base_url=ADDRESS).get("/broken")
    assert answer.status_code == 500
    assert "bug in Tuneyard: ZeroDivisionError" in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'self'")


def test_no_page_holds_a_script_or_a_style_of_its_own(client: TestClient) -> None:
    for path in ("/", "/jobs", "/jobs/support-bot", "/jobs/support-bot/logs"):
        text = client.get(path).text
        assert not re.search(r"<script(?! src=\"/static/)|<style|\sstyle=|\son[a-z]+=|javascript:", text), path


def test_a_form_of_a_page_changes_the_theme(client: TestClient) -> None:
    answer = client.post("/theme", data={"token": token_of(client), "theme": "dark", "back": "/jobs?q=a"}, headers=OWN)
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs?q=a")
    assert 'data-theme="dark"' in client.get("/").text


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://attacker.example"},
        {"Origin": "null"},
        {**OWN, "Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://127.0.0.1:1"},
    ],
)
def test_a_form_of_another_site_is_refused(client: TestClient, headers: dict[str, str]) -> None:
    assert client.post("/theme", data={"token": token_of(client), "theme": "dark"}, headers=headers).status_code == 403


@pytest.mark.parametrize("token", ["", "0" * 64, "é"])
def test_a_form_without_the_token_of_its_session_is_refused(client: TestClient, token: str) -> None:
    token_of(client)
    assert client.post("/theme", data={"token": token, "theme": "dark"}, headers=OWN).status_code == 400


def test_a_token_of_another_session_is_refused(client: TestClient) -> None:
    token = token_of(client)
    client.cookies.clear()
    assert client.post("/theme", data={"token": token, "theme": "dark"}, headers=OWN).status_code == 400


def test_a_large_form_is_refused(client: TestClient) -> None:
    assert client.post("/theme", data={"token": token_of(client), "theme": "x" * 70_000}, headers=OWN).status_code == 400


@pytest.mark.parametrize(
    "target", ["//attacker.example", "https://attacker.example/", "/\\attacker.example", "javascript:alert(1)", "jobs", "", "/a\nb"]
)
def test_a_form_leads_back_to_this_console_alone(target: str) -> None:
    assert local_target(target) == "/"
