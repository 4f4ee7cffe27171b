"""Text of the reference about each kind: its purpose, its author, and an example."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class KindText:
    """`example`: YAML that the loader accepts; empty for kinds that are never written by hand."""

    about: str
    example: str = ""


KIND_TEXTS: Mapping[str, KindText] = {
    "JobSpec": KindText(
        "A job: tasks that fine-tune and score models. Data scientists write it. `tuneyard run` runs it on one machine,\n"
        "`tuneyard submit` or `kubectl apply` gives it to a hub. `tuneyard validate FILE` checks a file against this page and against the\n"
        "[combinations that cannot work](combinations.md).",
        """\
apiVersion: tuneyard.dev/v1alpha1
kind: JobSpec
metadata: {name: support-bot, namespace: maps}
spec:
  tasks:
  - name: train
    train:
      model: {name: Qwen/Qwen2.5-0.5B}
      data: {source: s3://corpus/chats, format: chat}
      method: {lora: {rank: 16}}
    resources: {sku: [h100-80gb], workers: 8}
""",
    ),
    "Cluster": KindText(
        "A member cluster, as the hub sees it. The hub's operator writes it; the chart `tuneyard-member` prints one to start from.\n"
        "How cordoning, taints and queues work: [members](../members.md).",
        """\
apiVersion: tuneyard.dev/v1alpha1
kind: Cluster
metadata: {name: dca-a100}
spec:
  endpoint: {kubeconfigSecret: {name: dca-a100-kubeconfig, key: kubeconfig}}
  skus:
  - {name: a100-80gb, nodes: 16, gpusPerNode: 8, pricePerGpuHour: 1.6, nodeSelector: {gpu: a100}}
  network: {interface: bond0, bandwidthGbPerS: 20}
  storage: ["s3://dca-"]
  taints: [{key: nvidia.com/gpu, value: present}]
""",
    ),
    "Team": KindText(
        "The owner of quota. The hub's operator writes it. A job belongs to the team that `spec.team` names, else to the team with the\n"
        "name of its namespace. How quota, borrowing and fair share work: [scheduling](../scheduling.md#teams).",
        """\
apiVersion: tuneyard.dev/v1alpha1
kind: Team
metadata: {name: maps}
spec:
  quota: {h100-80gb: 64, a100-80gb: 128}
  borrowingLimit: {h100-80gb: 32}
  weight: 2
""",
    ),
    "Schedule": KindText(
        "A job that runs repeatedly, such as nightly scoring: on a hub, or by `tuneyard schedule run` on one machine. Each run is\n"
        "named after the minute in which it is due. How dates, waits, regressions and backfills work: [schedules](../schedules.md).",
        """\
apiVersion: tuneyard.dev/v1alpha1
kind: Schedule
metadata: {name: nightly-score, namespace: maps}
spec:
  cron: 0 2 * * *
  timeZone: Europe/Amsterdam
  concurrency: forbid
  template:
    spec:
      tasks:
      - name: judge
        score:
          model: {name: s3://models/support-bot/train/model}
          data: {source: "s3://evals/date={{ run.date - 1d }}", prompt: question, reference: answer}
          metrics: [exact_match, rouge_l]
""",
    ),
    "ModelTemplate": KindText(
        "Defaults that a platform team shares. A JobSpec takes them by naming the template in `spec.template`. Its own fields win.",
        """\
apiVersion: tuneyard.dev/v1alpha1
kind: ModelTemplate
metadata: {name: qwen-small}
spec:
  description: Qwen 0.5B with an adapter
  train:
    model: {name: Qwen/Qwen2.5-0.5B}
    method: {lora: {rank: 16}}
""",
    ),
    "AttemptReport": KindText(
        "The state of an attempt, on the member that runs it. The attempt writes it; the hub reads it and writes `spec.stop`.\n"
        "People never write it.",
    ),
}
