"""What the replica keeps of its own: its certificate, its counts."""

from __future__ import annotations

from typing import Any

import urllib3
from tests.cluster.logs_api.replica import Served, raw
from tests.testcluster.aggregated import LOGS
from tests.testcluster.install import SYSTEM
from tests.testcluster.kubeapi import Refused
from tests.testcluster.waiting import wait_for


def test_a_certificate_that_somebody_has_spoilt_is_made_anew(served: Served, two_ranks: str) -> None:
    served.hub.api.patch(f"/api/v1/namespaces/{SYSTEM}/secrets/{LOGS}", {"data": {"tls.crt": "bm9uc2Vuc2U="}})
    served.operator.stop()
    assert "not served any more" not in served.operator.log
    assert "Traceback" not in served.operator.log
    served.operator.start()
    wait_for("the certificate", lambda: raw_or_none(served, two_ranks), limit_s=240)


def raw_or_none(served: Served, name: str) -> Any:
    try:
        return raw(served, name)
    except Refused:
        return None


def test_answers_are_counted(served: Served, two_ranks: str) -> None:
    raw(served, two_ranks)
    text = urllib3.request("GET", f"{served.health}/metrics").data.decode()
    assert 'tuneyard_log_requests_total{code="200"}' in text
    assert "tuneyard_leader 0.0" in text
