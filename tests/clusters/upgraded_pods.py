"""Training jobs on real pods, with both charts on one cluster, while the hub's chart is upgraded and rolled back under them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from tests.cluster.home import OURS, install, join, logs, started, upgrade
from tests.clusters.versions import Version
from tests.clusters.watched import Seen, Watch
from tests.testcluster import Member
from tests.testcluster.images import ROOT
from tests.testcluster.install import BUCKET, JOBS, Storage
from tests.testcluster.waiting import wait_for

from tuneyard.storage import open_store

JOBSPECS = f"{OURS}/namespaces/default/jobspecs"
RAYJOBS = f"/apis/ray.io/v1/namespaces/{JOBS}/rayjobs"
CORPUS = f"s3://{BUCKET}/corpus"
LIMIT_S = 900
TEMPLATE = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "ModelTemplate", "metadata": {"name": "small"}}


@dataclass
class Home:
    """The cluster `member` with both charts, and the jobs on it. Reads and writes storage by the environment of this process."""

    member: Member
    storage: Storage
    watches: dict[str, Watch] = field(default_factory=dict)

    def prepare(self) -> None:
        """Put the corpus into storage: the quickstart's texts, and a model whose steps last long enough to change a hub in."""
        os.environ.update(self.storage.environment)
        store = open_store(CORPUS)
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-m", "tuneyard.data.stdlib", folder], check=True)
            for file in sorted(Path(folder).rglob("*")):
                if file.is_file():
                    store.put(str(file.relative_to(folder)), file.read_bytes())

    def watch(self) -> None:
        self.watches = {path: Watch(self.member.api, path) for path in (f"{OURS}/jobspecs", RAYJOBS)}

    def watched(self) -> list[list[Seen]]:
        """All versions of JobSpecs and of RayJobs since `watch`."""
        return [each.close() for each in self.watches.values()]

    def upgrade(self, version: Version, *, crds: bool = True) -> None:
        upgrade(self.member, version, crds=crds)

    def use_pods_of(self, version: Version) -> None:
        """Attempts that start from now on run this version's packages."""
        join(self.member, self.storage, version)

    def submit(self, *specs: dict[str, Any]) -> None:
        for spec in specs:
            self.member.api.create(JOBSPECS, spec)

    def patch(self, name: str, **spec: Any) -> None:
        self.member.api.patch(f"{JOBSPECS}/{name}", {"spec": spec})

    def status(self, name: str) -> dict[str, Any]:
        return dict(self.member.api.get(f"{JOBSPECS}/{name}").get("status") or {})

    def attempts(self, name: str) -> list[dict[str, Any]]:
        return list(self.status(name).get("attempts") or [])

    def wait(self, what: str, condition: Any, limit_s: float = LIMIT_S) -> Any:
        return wait_for(what, condition, limit_s=limit_s, every_s=0.5, words=self.words)

    def words(self) -> str:
        found = self.member.api.get(JOBSPECS)["items"]
        return (
            "\n".join(f"{each['metadata']['name']}: {json.dumps(each.get('status'))[:1500]}" for each in found) + logs(self.member)[-3000:]
        )

    def reaches(self, name: str, step: int) -> dict[str, Any]:
        """The newest attempt of a job, once it has done `step` steps."""

        def there() -> dict[str, Any] | None:
            own = self.attempts(name)
            if self.status(name).get("phase") == "Failed":
                raise AssertionError(f"{name} has failed: {self.words()}")
            return own[-1] if own and own[-1]["lastStep"] >= step else None

        return dict(self.wait(f"{name} reaches step {step}", there))

    def ended(self, *names: str) -> None:
        final = ("Succeeded", "Failed", "Cancelled")
        for name in names:
            self.wait(f"{name} ends", lambda name=name: self.status(name).get("phase") in final)

    def losses(self, name: str) -> list[float]:
        """Of every step, as the job's result has them; empty where it has none."""
        store = open_store(self.status(name)["output"])
        return list(json.loads(store.get("base/result.json"))["losses"]) if store.exists("base/result.json") else []


def train_job(name: str, *, steps: int, template: bool = False, **spec: Any) -> dict[str, Any]:
    """The quickstart's base task on one rank, from the corpus in storage, with a checkpoint every five steps. `template`: its model and
    batch are the ModelTemplate's."""
    whole = yaml.safe_load((ROOT / "jobspecs" / "quickstart.yaml").read_text())
    base = whole["spec"]["tasks"][1]
    base["train"] |= {"steps": steps, "optimizer": {"learningRate": 1e-3}, "checkpoint": {"everySteps": 5, "keep": 3}}
    base["train"] |= {"model": {"name": f"{CORPUS}/model", "init": "scratch"}}
    base["train"]["data"] = {"source": f"{CORPUS}/text.jsonl", "format": "text", "pack": True, "maxLength": 64, "limit": 40}
    base["resources"] = {"sku": ["cpu"], "workers": 1}
    if template:
        del base["train"]["model"], base["train"]["batch"]
        spec["template"] = "small"
    return {**whole, "metadata": {"name": name, "namespace": "default"}, "spec": {"tasks": [base], **spec}}


def template() -> dict[str, Any]:
    """The ModelTemplate of jobs that name one."""
    train = yaml.safe_load((ROOT / "jobspecs" / "quickstart.yaml").read_text())["spec"]["tasks"][1]["train"]
    return {**TEMPLATE, "spec": {"train": {"model": {"name": f"{CORPUS}/model", "init": "scratch"}, "batch": train["batch"]}}}


def quota(slots: int) -> dict[str, Any]:
    """A Team that lets jobs of the namespace `default` take so many slots."""
    spec = {"quota": {"cpu": slots}, "borrowingLimit": {"cpu": 0}}
    return {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "Team", "metadata": {"name": "default"}, "spec": spec}


@contextmanager
def home(folder: Path) -> Iterator[Home]:
    """A cluster with both charts, and the corpus in its storage. Raises Unavailable where it cannot run."""
    with started(folder) as (member, storage):
        install(member, storage)
        found = Home(member, storage)
        found.prepare()
        yield found
