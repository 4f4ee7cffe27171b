"""A new kind of GPU is one entry in one file, `catalog/gpu_kinds.py`: the entry that docs/extending/gpu-kind.md shows, in a copy."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import tuneyard

HERE = Path(tuneyard.__file__).parent
PAGE = Path(__file__).parents[3] / "docs" / "extending" / "gpu-kind.md"

SCRIPT = """
import json
from pathlib import Path
from tests.builders.attempts import UID, attempt, job, train
from tuneyard.api import Cluster, JobStatus, TrainTask
from tuneyard.catalog import shape_from_config
from tuneyard.catalog import ModelShape, canonical_sku, gpu, known_config, known_skus
from tuneyard.cli.checks import check_file
from tuneyard.federation import World, ask_of, member_of, own_sku, schedule, speed_factor
from tuneyard.planning import Plan, resolve
from tuneyard.training.flops import peak_flops
from tuneyard.tuning.rows import device
from tuneyard_operators.hub.inventory import inventory, kept_of_node
from tuneyard_operators.hub.placement_status import placement_of
from tuneyard_operators.rendering import Defaults, rayjob

Path("job.yaml").write_text('''
apiVersion: tuneyard.dev/v1alpha1
kind: JobSpec
metadata: {name: bot}
spec:
  tasks:
  - name: train
    train: {model: {name: m, attention: flash}, data: {source: s3://b/d.jsonl}}
    resources: {sku: [9090]}
'''.replace("9090]", "'9090']"))
task = TrainTask.model_validate({"model": {"name": "m"}, "data": {"source": "d"}, "batch": {"global": 8}})
shape = shape_from_config(known_config("Qwen/Qwen2.5-0.5B"))
plan = resolve(task, shape, gpu("RTX 9090"), 2)

labels = {"nvidia.com/gpu.product": "NVIDIA-GeForce-RTX-9090"}
status = {"allocatable": {"nvidia.com/gpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]}
node = kept_of_node({"metadata": {"name": "n1", "labels": labels}, "spec": {}, "status": status})
skus = [{"name": name, "nodes": 1, "gpusPerNode": 8} for name in ("h100-80gb", "rtx9090")]
cluster = Cluster.model_validate({"metadata": {"name": "lab"}, "spec": {"skus": skus}})
asked = job(tasks=[train("train", 8, sku=["9090"])])
ask = ask_of(asked, 0.0, "train", JobStatus())
(place,) = schedule(World(members=(member_of(cluster, inventory(cluster, [node], [])),), asks=(ask,)), "tuneyard", 0.0)
placement = placement_of(place, cluster)
made = rayjob(asked, UID, attempt(1, "train", placement=placement), cluster, "s3://o", Defaults(image="i:1"))
worker = made["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["template"]["spec"]["containers"][0]
print(json.dumps({
    "sku": canonical_sku("NVIDIA GeForce RTX 9090"),
    "listed": "rtx-9090-48gb" in known_skus(),
    "accepted": len(check_file(Path("job.yaml"))),
    "precision": plan.precision,
    "planned": plan.speed.tokens_per_s > 0,
    "peak": peak_flops(plan, 2),
    "faster": speed_factor("rtx-9090-48gb"),
    "history": device("NVIDIA GeForce RTX 9090").sku,
    "placed": [placement.sku, dict(placement.nodes)],
    "limits": worker["resources"]["limits"],
}))
"""


def entry_of_the_page() -> str:
    """The entry that the page shows."""
    found = re.search(r"```text\n(    nvidia\(.*?\n)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def package_with(entry: str, folder: Path) -> None:
    """The package as it is, but for one more entry in one file. All else is linked."""
    package = folder / "tuneyard"
    (package / "catalog").mkdir(parents=True)
    for source in HERE.iterdir():
        if source.name not in ("catalog", "__pycache__"):
            (package / source.name).symlink_to(source)
    for source in (HERE / "catalog").glob("*.py"):
        if source.name != "gpu_kinds.py":
            (package / "catalog" / source.name).symlink_to(source)
    text = (HERE / "catalog" / "gpu_kinds.py").read_text()
    start = "GPU_KINDS: tuple[Gpu, ...] = (\n"
    assert start in text
    (package / "catalog" / "gpu_kinds.py").write_text(text.replace(start, start + entry))


def test_one_entry_in_one_file_is_all_that_a_kind_takes(tmp_path: Path) -> None:
    package_with(entry_of_the_page(), tmp_path)
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{root}", "PYTHONDONTWRITEBYTECODE": "1", "TUNEYARD_HISTORY": "off"}

    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "sku": "rtx-9090-48gb",
        "listed": True,
        "accepted": 1,
        "precision": "bf16",
        "planned": True,
        "peak": 2 * 312e12,
        "faster": 1.0,
        "history": "rtx-9090-48gb",
        "placed": ["rtx9090", {"n1": 8}],
        "limits": {"nvidia.com/gpu": "8"},
    }
