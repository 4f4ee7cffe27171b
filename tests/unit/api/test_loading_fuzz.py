"""Whatever a file holds, the answer is a model or BadInput: never a stack trace."""

from __future__ import annotations

import copy
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneyard.api import BadInput, parse

FULL = """\
apiVersion: tuneyard.dev/v1alpha1
kind: JobSpec
metadata: {name: support-bot, namespace: maps, labels: {a: b}}
spec:
  team: maps
  priority: normal
  deadline: 2d
  ttlAfterFinished: 7d
  retries: {max: 3, onOutOfMemory: shrink}
  placement: {clusters: [dca], skus: [cpu], spread: never}
  setup: [echo hello]
  env: [{name: HF_TOKEN, valueFrom: {secretKeyRef: {name: hf, key: token}}}]
  storage: {output: s3://models/support-bot, scratch: 3Ti}
  tracking: {comet: {project: support-bot}}
  tasks:
  - name: train
    train:
      model: {name: tiny, init: pretrained, attention: auto}
      data: {source: chats, format: chat, pack: true, maxLength: 4096, validationFraction: 0.01, columns: {prompt: q}}
      method: {lora: {rank: 16, targets: [q_proj]}}
      objective: sft
      optimizer: {name: adamw, learningRate: 2e-4, betas: [0.9, 0.95]}
      batch: {global: 128, micro: auto}
      strategy: {zero: 3, offload: {optimizer: cpu, parameters: none}, precision: bf16}
      checkpoint: {everySteps: 200, keep: 3}
    resources: {sku: [h100-80gb], workers: {min: 2, max: 8}}
  - name: judge
    dependsOn: [train]
    score:
      model: {from: train}
      data: {source: holdout.parquet, prompt: question, reference: answer}
      generation: {maxTokens: 700, temperature: 0, stop: [x]}
      metrics: [exact_match, perplexity]
    resources: {instances: 4}
"""
SCHEDULE: dict[str, Any] = {
    "apiVersion": "tuneyard.dev/v1alpha1",
    "kind": "Schedule",
    "metadata": {"name": "nightly"},
    "spec": {"cron": "0 2 * * *", "timeZone": "Europe/Amsterdam", "template": {"spec": yaml.safe_load(FULL)["spec"]}},
}
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.just(10**400),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["auto", "1e999", "9" * 400 + "d", "Europe", "../..", "* * * * *", "0 0 31 2 *", "3Ti", "2d"]),
)
values = st.recursive(
    scalars, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)), max_leaves=6
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(inner for key, child in children for inner in places(child, (*path, key)))]


@st.composite
def mutated(draw: st.DrawFn, original: dict[str, Any]) -> str:
    """The original with one to three values replaced, removed or put under another name."""
    document = copy.deepcopy(original)
    for _ in range(draw(st.integers(1, 3))):
        *parents, last = draw(st.sampled_from([path for path in places(document) if path]))
        group = document
        for part in parents:
            group = group[part]
        match draw(st.sampled_from(["replace", "remove", "rename"])):
            case "replace":
                group[last] = draw(values)
            case "remove":
                del group[last]
            case "rename" if isinstance(group, dict):
                group[draw(st.text(min_size=1, max_size=8))] = group.pop(last)
    return str(yaml.dump(document, Dumper=yaml.CSafeDumper, allow_unicode=True))


def loads_or_is_refused(text: str) -> None:
    """One line per problem, each with the file's name, however strange the names and values in it are."""
    complaints: list[str] = []
    try:
        parse(text, "job.yaml")
    except BadInput as error:
        complaints = error.cause.split("\n")
    assert all(line.startswith("job.yaml:") for line in complaints)


@settings(max_examples=100, deadline=None)
@given(mutated(yaml.safe_load(FULL.replace("2e-4", "0.0002"))))
def test_a_mutated_jobspec_loads_or_is_refused(text: str) -> None:
    loads_or_is_refused(text)


@settings(max_examples=40, deadline=None)
@given(mutated(SCHEDULE))
def test_a_mutated_schedule_loads_or_is_refused(text: str) -> None:
    loads_or_is_refused(text)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_file_with_damaged_text_loads_or_is_refused(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(FULL)))
    end = data.draw(st.integers(start, min(len(FULL), start + 40)))
    noise = data.draw(st.one_of(st.text(max_size=10), st.text(alphabet=" \t\n:-[]{}&*!|>'\"%@`#?,<", max_size=10)))
    loads_or_is_refused(FULL[:start] + noise + FULL[end:])


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_any_text_loads_or_is_refused(text: str) -> None:
    loads_or_is_refused(text)
