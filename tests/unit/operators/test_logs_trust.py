"""Whom the API of logs believes, and what it is trusted by."""

from __future__ import annotations

import datetime
import ssl

import pytest
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st

from tuneyard_operators.logs.certificates import VALID, Serving, new_serving
from tuneyard_operators.logs.front_proxy import FrontProxy, Headers, asker_of
from tuneyard_operators.logs.limits import Limits
from tuneyard_operators.logs.problems import Problem

NOW = datetime.datetime(2026, 11, 23, tzinfo=datetime.UTC)
HOST = "tuneyard-hub-logs.tuneyard-system.svc"
PROXY = FrontProxy("-----BEGIN CERTIFICATE-----", frozenset({"front-proxy-client"}))
SHOWN = {"subject": ((("organizationName", "system"),), (("commonName", "front-proxy-client"),))}


def headers(*pairs: tuple[str, str]) -> Headers:
    """As aiohttp hands them over."""
    return make_mocked_request("GET", "/", headers=pairs).headers


def test_the_reader_is_whom_the_front_proxy_names() -> None:
    asker = asker_of(
        headers(
            ("x-remote-user", "ada"),
            ("X-Remote-Group", "maps"),
            ("X-Remote-Group", "system:authenticated"),
            ("X-Remote-Uid", "7"),
            ("X-Remote-Extra-Example.org%2fScopes", "read"),
            ("X-Custom-User", "root"),
        ),
        SHOWN,
        PROXY,
    )
    assert asker.to_json() == {
        "user": "ada",
        "uid": "7",
        "groups": ["maps", "system:authenticated"],
        "extra": {"example.org/scopes": ["read"]},
    }


@pytest.mark.parametrize(
    ("certificate", "given_headers"),
    [
        (None, [("X-Remote-User", "root")]),
        ({}, [("X-Remote-User", "root")]),
        ({"subject": ((("commonName", "admin"),),)}, [("X-Remote-User", "root")]),
        ({"subject": ((("organizationName", "front-proxy-client"),),)}, [("X-Remote-User", "root")]),
        (SHOWN, []),
        (SHOWN, [("X-Remote-User", "")]),
    ],
)
def test_others_are_not_believed(certificate: dict[str, object] | None, given_headers: list[tuple[str, str]]) -> None:
    with pytest.raises(Problem) as refused:
        asker_of(headers(*given_headers), certificate, PROXY)
    assert refused.value.code == 401


def test_a_name_in_bytes_that_are_no_text() -> None:
    class Raw(dict[str, str]):
        """As headers arrive that are no UTF-8."""

        def getall(self, _name: str, default: list[str], /) -> list[str]:
            return default

    with pytest.raises(Problem, match="not UTF-8"):
        asker_of(Raw({"X-Remote-User": "\udcff"}), SHOWN, PROXY)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"requestheader-client-ca-file": "x"},
        {"requestheader-client-ca-file": "-----BEGIN CERTIFICATE-----", "requestheader-allowed-names": "{}"},
        {"requestheader-client-ca-file": "-----BEGIN CERTIFICATE-----", "requestheader-allowed-names": "["},
    ],
)
def test_an_api_server_without_a_front_proxy(data: dict[str, str]) -> None:
    with pytest.raises(ValueError):
        FrontProxy.from_config_map(data)


def test_a_certificate_is_good_until_it_is_due_and_for_its_host_alone() -> None:
    made = new_serving(HOST, NOW)
    assert made.is_good(HOST, NOW)
    assert not made.is_good("another.svc", NOW)
    assert not made.is_good(HOST, NOW - datetime.timedelta(days=1))
    assert not made.is_good(HOST, NOW + VALID - datetime.timedelta(days=100))
    assert not new_serving(HOST, NOW, made).is_good(HOST, NOW + VALID)
    assert Serving.from_data(made.to_data()) == made


def test_who_trusts_the_new_authority_trusts_the_one_before() -> None:
    first = new_serving(HOST, NOW)
    second = new_serving(HOST, NOW, first)
    third = new_serving(HOST, NOW, second)
    assert second.authorities.count("BEGIN CERTIFICATE") == third.authorities.count("BEGIN CERTIFICATE") == 2
    assert first.authorities.strip() in second.authorities
    assert first.authorities.strip() not in third.authorities
    assert not Serving(first.certificate, first.key, second.authorities).is_good(HOST, NOW)
    ssl.create_default_context(cadata=third.authorities)


@given(st.text(), st.sampled_from(["tls.crt", "tls.key", "ca.crt"]))
def test_whatever_stands_in_the_secret_is_good_or_not(text: str, name: str) -> None:
    held = Serving.from_data(new_serving(HOST, NOW).to_data() | {name: text})
    assert held is None or not held.is_good(HOST, NOW)


def test_limits_of_all_and_of_a_storage() -> None:
    limits = Limits(at_once=3, of_a_storage=1)
    with limits.question(), limits.question(), limits.of("http://slow"):
        with pytest.raises(Problem) as busy, limits.of("http://slow"):
            pass
        assert (busy.value.code, busy.value.headers) == (429, {"Retry-After": "1"})
        with limits.of("http://other"), limits.question(), pytest.raises(Problem), limits.question():
            pass
    with limits.question(), limits.of("http://slow"):
        pass
