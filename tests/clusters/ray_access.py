"""Access to the Ray of a running attempt: only requests with its token are answered."""

from __future__ import annotations

import base64
import urllib.error
import urllib.request

import grpc
import pytest
from tests.testcluster import Member
from tests.testcluster.install import JOBS


def check_that_ray_is_closed(member: Member, job: str) -> None:
    """The dashboard and the control plane of the one attempt that runs, of this job, answer its own token alone."""
    pods = member.api.get(f"/api/v1/namespaces/{JOBS}/pods")["items"]
    (head,) = [pod["status"]["podIP"] for pod in pods if pod["metadata"]["labels"].get("ray.io/node-type") == "head"]
    jobs = f"http://{head}:8265/api/jobs/"
    assert answer_of(jobs) == 401
    assert answer_of(jobs, "Bearer of-somebody-else") == 403
    assert answer_of(jobs, f"Bearer {token_of(member, job)}") == 200
    assert refusal_of(f"{head}:6379", "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo") is grpc.StatusCode.UNAUTHENTICATED


def answer_of(url: str, authorization: str = "") -> int:
    """The status of a GET, as any pod of the member could send it."""
    request = urllib.request.Request(url, headers={"Authorization": authorization} if authorization else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def refusal_of(address: str, method: str) -> grpc.StatusCode:
    """How Ray's control plane answers a call without a token."""
    with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError) as refused:
        channel.unary_unary(method)(b"", timeout=60)
    return refused.value.code()


def token_of(member: Member, job: str) -> str:
    """The token that KubeRay has made for the running attempt of a job."""
    secrets = member.api.get(f"/api/v1/namespaces/{JOBS}/secrets")["items"]
    (own,) = [each["data"] for each in secrets if each["metadata"]["name"].startswith(f"{job}-") and "auth_token" in each["data"]]
    return base64.b64decode(own["auth_token"]).decode()
