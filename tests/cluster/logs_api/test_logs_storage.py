"""Whose storage the hub reads, and with whose keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.logs_api.replica import KEYS, Object, Say, Served, cluster, make_job, placed_on, raw, secret
from tests.testcluster.install import SYSTEM
from tests.testcluster.kubeapi import Refused

from tuneyard.storage import open_store
from tuneyard.tracking.task_logs import Chunk


def test_an_author_leads_the_hub_to_no_server_of_his(served: Served, say: Say, of_the_author: tuple[str, list[bytes]]) -> None:
    address, heard = of_the_author
    keys = [{"name": key, "valueFrom": {"secretKeyRef": {"name": "s3", "key": key}}} for key in KEYS]
    make_job(served, "led-astray", env=[*keys, {"name": "AWS_ENDPOINT_URL_S3", "value": address}])
    code, out, err = say("logs", "led-astray")
    assert (code, out, heard) == (1, "", [])
    assert f"is at {address}: that is what the job says, and" in err


def test_the_hubs_own_keys_open_nothing_that_an_author_names(served: Served) -> None:
    make_job(served, "keyless", env=[])
    with pytest.raises(Refused, match="the hub has no keys for the storage of default/keyless: the Secret tuneyard-storage of namespace"):
        raw(served, "keyless")


def member(name: str, server: str, **spec: Any) -> Object:
    """A Cluster that gives its containers keys, from a Secret of its namespace `jobs-there`."""
    found = cluster(name, server)
    found["spec"]["env"] += [{"name": key, "valueFrom": {"secretKeyRef": {"name": "of-member", "key": key}}} for key in KEYS]
    found["spec"] |= {"namespace": "jobs-there", **spec}
    return found


def test_the_keys_that_a_member_gives_to_its_pods(served: Served, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {name: served.s3.environment[name] for name in KEYS}
    given = secret("of-member", values)
    given["metadata"]["namespace"] = "jobs-there"
    served.hub.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "jobs-there"}}, given)
    served.hub.apply(member("home", served.s3.environment["AWS_ENDPOINT_URL"]))
    store = served.store(make_job(served, "at-home", env=[], attempts=placed_on("home")), monkeypatch)
    store.create(Chunk("train", 1, "driver", 1).path, b"hello\n")
    assert say("logs", "at-home") == (0, "hello\n", "")


def test_a_member_that_is_away_gives_none_and_says_so(served: Served) -> None:
    config = yaml.safe_load(served.hub.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    there = secret("away-kubeconfig", {"kubeconfig": yaml.safe_dump(config)})
    there["metadata"]["namespace"] = SYSTEM
    reference = {"kubeconfigSecret": {"name": "away-kubeconfig", "key": "kubeconfig"}}
    served.hub.apply(there, member("away", served.s3.environment["AWS_ENDPOINT_URL"], endpoint=reference))
    make_job(served, "far-away", env=[], attempts=placed_on("away"))
    with pytest.raises(Refused, match=r"the member away gives no keys: https://127\.0\.0\.1:9 does not answer") as refused:
        raw(served, "far-away")
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ("hdfs://nowhere.example:8020/models/x", "hdfs://, which the hub does not read"),
        ("webhdfs://127.0.0.1:1/models/x", "webhdfs://, which the hub does not read"),
        ("file:///etc", "a path of its pods' machines"),
        ("/etc", "a path of its pods' machines"),
        ("s3://key:secret@bucket/x", "a s3:// URI contains credentials"),
    ],
)
def test_what_the_hub_does_not_read(served: Served, output: str, why: str) -> None:
    name = f"o-{abs(hash(output))}"
    make_job(served, name, output)
    with pytest.raises(Refused) as refused:
        raw(served, name)
    assert refused.value.status == 400
    assert why in str(refused.value)


def test_a_local_output_is_read_where_it_lies(served: Served, say: Say, tmp_path: Path) -> None:
    make_job(served, "local", str(tmp_path / "out"))
    open_store(str(tmp_path / "out")).create(Chunk("train", 2, "rank-0", 1).path, b"here\n")
    assert say("logs", "local")[:2] == (0, "here\n")
