"""What a reader sees with a kubeconfig and no keys of storage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cluster.logs_api.replica import LOG, Say, Served


def test_who_may_view_a_namespace_reads_its_logs_with_a_kubeconfig(two_ranks: str, say: Say) -> None:
    code, out, err = say("logs", two_ranks)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"[train {who}] {what} from {who.replace(' ', '-')}" for who in ("driver", "rank 0", "rank 1") for what in ("hello", "more")
    ]
    assert say("logs", two_ranks, "--rank", 1)[1] == "hello from rank-1\nmore from rank-1\n"
    assert say("logs", two_ranks, "--source", "driver", "--tail", 1)[1] == "more from driver\n"
    assert say("logs", two_ranks, "--rank", 7)[::2] == (
        2,
        "error: rank 7 has printed nothing in this attempt\nnext: there are: driver, rank-0, rank-1\n",
    )
    assert "attempt 1 of train has left no logs; it failed: NodeLost" in say("logs", two_ranks, "--attempt", 1)[2]


def test_kubectl_reads_it_raw(served: Served, two_ranks: str) -> None:
    path = LOG.format("default", two_ranks)
    answer = json.loads(served.hub.kubectl("get", "--raw", f"{path}?source=rank-1"))
    assert answer["kind"] == "JobSpecLog"
    assert (answer["task"], answer["attempt"], answer["sources"]) == ("train", 2, ["driver", "rank-0", "rank-1"])
    assert answer["parts"] == [{"source": "rank-1", "text": "hello from rank-1\nmore from rank-1\n"}]
    again = json.loads(served.hub.kubectl("get", "--raw", f"{path}?cursor={answer['cursor']}"))
    assert [part["source"] for part in again["parts"]] == ["driver", "rank-0"]
    assert served.hub.kubectl("get", "--raw", f"{path}?source=driver&format=text&tailLines=1") == "more from driver\n"
    assert served.hub.kubectl("get", "jobspecs", two_ranks, "-o", "name") == f"jobspec.tuneyard.dev/{two_ranks}\n"
    assert "jobspecs.logs.tuneyard.dev" not in served.hub.kubectl("api-resources", "-o", "name")
    right = ("get", "jobspecs.logs.tuneyard.dev", "--subresource=log", "-n", "default")
    assert served.hub.kubectl("--kubeconfig", str(served.reader), "auth", "can-i", *right) == "yes\n"


def test_who_lacks_the_right_is_told_which(served: Served, two_ranks: str, say: Say, tmp_path: Path) -> None:
    (tmp_path / "eve").write_text(served.hub.kubeconfig_for("eve"))
    code, out, err = say("logs", two_ranks, "--kubeconfig", tmp_path / "eve")
    assert (code, out) == (1, "")
    assert err == (
        f"error: eve may not get jobspecs/log in namespace default of the hub at {served.hub.server}\n"
        "next: ask its administrators for the verb 'get' on jobspecs/log of logs.tuneyard.dev, which the role `view` has; "
        "check: kubectl auth can-i get jobspecs.logs.tuneyard.dev --subresource=log -n default\n"
    )


def test_who_lacks_the_right_and_has_keys_reads_storage(
    served: Served, two_ranks: str, say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "eve").write_text(served.hub.kubeconfig_for("eve"))
    for name, value in served.s3.environment.items():
        monkeypatch.setenv(name, value)
    assert say("logs", two_ranks, "--rank", 0, "--kubeconfig", tmp_path / "eve")[:2] == (0, "hello from rank-0\nmore from rank-0\n")
