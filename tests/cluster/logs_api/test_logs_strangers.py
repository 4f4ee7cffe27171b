"""Who is turned away: callers past the API server, forged users, names that lead elsewhere."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from pathlib import Path

import pytest
import urllib3
import yaml
from tests.cluster.logs_api.replica import LOG, Object, Served
from tests.testcluster.kubeapi import Refused


def direct(served: Served, path: str, headers: dict[str, str], certificate: Path | None = None) -> tuple[int, Object]:
    """A question past the API server."""
    context = ssl._create_unverified_context()
    if certificate is not None:
        context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    connection = http.client.HTTPSConnection("127.0.0.1", served.port, context=context, timeout=20)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


ROOT = {"X-Remote-User": "root", "X-Remote-Group": "system:masters"}


@pytest.mark.parametrize("path", ["/apis/logs.tuneyard.dev/v1alpha1", "/nothing", LOG.format("default", "any")])
def test_nobody_but_the_api_server_is_answered(served: Served, path: str) -> None:
    code, said = direct(served, path, ROOT)
    assert (code, said["kind"], said["reason"]) == (401, "Status", "Unauthorized")


def test_certificates_of_users_do_not_pass_for_the_front_proxys(served: Served) -> None:
    with pytest.raises((ssl.SSLError, OSError)):
        direct(served, LOG.format("default", "any"), ROOT, served.hub.folder / "pki" / "admin.crt")
    other = served.hub._plane.front_proxy.issue("another-proxy")
    code, said = direct(served, LOG.format("default", "any"), ROOT, other.certificate)
    assert (code, said["message"]) == (401, "this certificate is not that of the API server's front proxy")


def test_a_forged_user_is_the_one_who_forges(served: Served, two_ranks: str, tmp_path: Path) -> None:
    """Through the API server: what a reader writes into its headers is replaced."""
    (tmp_path / "eve").write_text(served.hub.kubeconfig_for("eve"))
    words = ("--kubeconfig", str(tmp_path / "eve"), "get", "--raw", LOG.format("default", two_ranks))
    with pytest.raises(RuntimeError, match='User "eve" cannot get resource "jobspecs/log"'):
        served.hub.kubectl(*words)
    config = yaml.safe_load((tmp_path / "eve").read_text())["users"][0]["user"]
    pair = tmp_path / "pair"
    pair.write_bytes(base64.b64decode(config["client-certificate-data"]) + base64.b64decode(config["client-key-data"]))
    context = ssl._create_unverified_context()
    context.load_cert_chain(pair)
    pool = urllib3.PoolManager(ssl_context=context, retries=False, assert_hostname=False)
    answer = pool.request("GET", served.hub.server + LOG.format("default", two_ranks), headers=ROOT)
    assert answer.status == 403
    assert 'User \\"eve\\"' in answer.data.decode()


@pytest.mark.parametrize(
    "path",
    [
        LOG.format("default", ".."),
        LOG.format("default", "..%2f..%2fx"),
        LOG.format("default", "UPPER"),
        LOG.format("..%2fx", "j"),
        LOG.format("default", "j") + "?source=..%2f..%2fsecret",
        LOG.format("default", "j") + "?cursor=../x:1",
        LOG.format("default", "j") + "?attempt=-1",
        LOG.format("default", "j") + "?atempt=1",
        LOG.format("default", "j") + "?limitBytes=99999999999",
    ],
)
def test_names_that_lead_elsewhere_are_refused(served: Served, path: str) -> None:
    with pytest.raises(Refused) as refused:
        served.hub.api.get(path)
    assert refused.value.status in (400, 404)
    assert served.healthy()
