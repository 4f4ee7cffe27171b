"""What `submit` would ship of the files beside a JobSpec, what it refuses, and what then lies in storage."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuneyard.api import BadInput, JobSpec, StorageError
from tuneyard.api.programs import program_files
from tuneyard.cluster import CannotShip, Parcel, Shipment, shipment_of
from tuneyard.cluster.uploads import Sent, send
from tuneyard.runtime.process.run import working_folder
from tuneyard.storage import fetch_folder, open_store

OUT = "s3://models/bot"
KEY = {"name": "TUNEYARD_API_KEY", "valueFrom": {"secretKeyRef": {"name": "bot", "key": "TUNEYARD_API_KEY"}}}
Ship = Callable[..., Shipment]


@pytest.fixture
def ship(tmp_path: Path) -> Ship:
    """The shipment of a job of these tasks, whose file would lie in the test's folder `job`."""
    (tmp_path / "job").mkdir()

    def make(*tasks: dict[str, Any], out: str | None = OUT, **options: Any) -> Shipment:
        spec = {"tasks": list(tasks), **options.pop("spec", {})}
        manifest = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "bot"}, "spec": spec}
        return shipment_of(manifest, tmp_path / "job", out=out, **options)

    return make


@pytest.fixture
def folder(tmp_path: Path, ship: Ship) -> Path:  # noqa: ARG001 - makes it
    return tmp_path / "job"


def write(path: Path, text: str = "text\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def train(source: str = "s3://b/chats.jsonl", **data: Any) -> dict[str, Any]:
    model = data.pop("model", "Qwen/Qwen2.5-0.5B")
    return {"name": "train", "train": {"model": {"name": model}, "data": {"source": source, **data}}}


def process(*command: str, **fields: Any) -> dict[str, Any]:
    return {"name": "prepare", "process": {"command": list(command), **fields}}


def body(shipment: Shipment, task: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = shipment.manifest["spec"]["tasks"][task]
    return found


def sent_to(shipment: Shipment, root: Path) -> Sent:
    return send(replace(shipment, root=str(root)))


def refused(ship: Ship, *tasks: dict[str, Any], **options: Any) -> str:
    with pytest.raises(CannotShip) as error:
        ship(*tasks, **options)
    assert error.value.next_step
    return error.value.cause


def test_what_is_in_storage_already_stays_as_it_is(ship: Ship) -> None:
    tasks = [train(), process("true"), process("python", "/opt/prepare.py", "--from", "s3://b/x.py") | {"name": "other"}]
    shipment = ship(*tasks, train(model="/mnt/model", source="/mnt/chats.jsonl", chatTemplate="{{ messages }}") | {"name": "mounted"})
    assert shipment.parcels == ()
    assert shipment.manifest["spec"]["tasks"][:3] == tasks


def test_data_go_by_the_hash_of_their_content(ship: Ship, folder: Path, tmp_path: Path) -> None:
    write(folder / "data/chats.jsonl", "one\n")
    first = ship(train("data/chats.jsonl"))
    source = body(first)["train"]["data"]["source"]
    assert source.startswith(f"{OUT}/_shipped/")
    assert source.endswith("/chats.jsonl")
    assert first.manifest["spec"]["storage"] == {"output": OUT}

    sent = sent_to(first, tmp_path / "store")
    assert ([p.text for p in sent.new], sent.there) == (["data/chats.jsonl"], ())
    assert (tmp_path / "store" / source.removeprefix(f"{OUT}/_shipped/")).read_text() == "one\n"
    again = sent_to(ship(train("data/chats.jsonl")), tmp_path / "store")
    assert (again.new, len(again.there)) == ((), 1)

    write(folder / "data/chats.jsonl", "two\n")
    assert body(ship(train("data/chats.jsonl")))["train"]["data"]["source"] != source
    JobSpec.model_validate(first.manifest)


def test_folders_patterns_models_and_templates(ship: Ship, folder: Path, tmp_path: Path) -> None:
    write(folder / "parts/a.jsonl", "a\n")
    write(folder / "parts/.hidden")
    write(folder / "parts/manifest.json", "of the folder that it was copied from")
    write(folder / "parts/deep/b.jsonl", "b\n")
    write(folder / "bases/tiny/config.json", "{}")
    write(folder / "bases/tiny/model.safetensors")
    write(folder / "chat.jinja", "{{ messages }}")
    validation = {"validation": {"source": "parts/*.jsonl"}}
    shipment = ship(train("parts", model="bases/tiny", chatTemplate="chat.jinja", **validation))
    made = body(shipment)["train"]
    assert {p.text: sorted(p.files) for p in shipment.parcels} == {
        "parts": ["a.jsonl", "deep/b.jsonl"],
        "parts/*.jsonl": ["a.jsonl"],
        "bases/tiny": ["config.json", "model.safetensors"],
        "chat.jinja": ["chat.jinja"],
    }
    assert made["data"]["validation"]["source"].endswith("/parts/*.jsonl")
    assert made["data"]["chatTemplate"].endswith("/chat.jinja")
    assert made["model"]["name"].endswith("/tiny")

    sent_to(shipment, tmp_path / "store")
    there = {uri.removeprefix(f"{OUT}/_shipped/") for uri in (made["data"]["source"], made["model"]["name"])}
    assert all(open_store(str(tmp_path / "store" / name)).is_complete("") for name in there)


def test_a_model_is_shipped_under_the_name_that_requests_call_it(ship: Ship, folder: Path) -> None:
    write(folder / "runs/first/train/model/config.json", "{}")
    for text, name in (("./runs/first", "first"), ("./runs/first/train/model", "train")):
        shipment = ship({"name": "serve", "serve": {"models": [{"name": text}]}}, spec={"env": [KEY]})
        assert body(shipment)["serve"]["models"][0]["name"].endswith(f"/{name}")
        assert list(shipment.parcels[0].files) == ["config.json"]


def test_a_pattern_means_the_same_files_in_storage(ship: Ship, folder: Path) -> None:
    write(folder / "parts/a.jsonl")
    write(folder / "parts/deep/b.jsonl")
    shipment = ship(train("parts/**/*.jsonl"))
    assert sorted(shipment.parcels[0].files) == ["a.jsonl", "deep/b.jsonl"]
    assert body(shipment)["train"]["data"]["source"].endswith("/parts/*")


def test_a_command_takes_its_scripts_their_modules_and_what_it_names_along(ship: Ship, folder: Path, tmp_path: Path) -> None:
    write(folder / "tools/prepare.py", "import json, cleaning\nfrom rules.english import WORDS\n")
    write(folder / "tools/cleaning.py", "import helpers\n")
    write(folder / "tools/helpers.py")
    write(folder / "tools/rules/__init__.py", "")
    write(folder / "tools/rules/english.py", "from . import words\n")
    write(folder / "tools/rules/words.txt")
    write(folder / "tools/unused.py")
    write(folder / "settings.yaml")
    write(folder / "raw.csv")
    write(folder / "run.sh", "true\n").chmod(0o755)
    command = ["sh", "-c", "./run.sh && python tools/prepare.py --config=settings.yaml raw.csv --to $TUNEYARD_OUTPUT"]
    shipment = ship(process(*command))
    (parcel,) = shipment.parcels
    tools = ["cleaning.py", "helpers.py", "prepare.py", "rules/__init__.py", "rules/english.py", "rules/words.txt"]
    assert sorted(parcel.files) == ["raw.csv", "run.sh", "settings.yaml", *(f"tools/{name}" for name in tools)]
    assert body(shipment)["process"] == {"command": command, "workingDir": f"{OUT}/_shipped/{parcel.place}"}

    sent_to(shipment, tmp_path / "store")
    task = JobSpec.model_validate(shipment.manifest).spec.tasks[0].process
    assert task is not None
    local = task.model_copy(update={"working_dir": str(tmp_path / "store" / parcel.place)})
    assert (working_folder(local, folder, tmp_path / "copy") / "tools/rules/words.txt").exists()


def test_modules_that_are_run_by_name(folder: Path) -> None:
    write(folder / "jobs/__init__.py", "")
    write(folder / "jobs/prepare.py", "import shared\n")
    write(folder / "shared.py", "def broken(:\n")
    found = program_files(["python", "-m", "jobs.prepare", "jobs"], folder)
    assert {path.relative_to(folder).as_posix() for path in found} == {"jobs/__init__.py", "jobs/prepare.py", "shared.py"}


def test_a_working_folder_is_shipped_whole(ship: Ship, folder: Path) -> None:
    write(folder / "tools/prepare.py")
    write(folder / "tools/words.txt")
    write(folder / "tools/__pycache__/prepare.pyc")
    shipment = ship(process("python", "prepare.py", workingDir="tools"))
    assert sorted(shipment.parcels[0].files) == ["prepare.py", "words.txt"]
    assert body(shipment)["process"]["workingDir"].endswith("/tools")


def test_all_that_cannot_be_shipped_is_said_at_once(ship: Ship, folder: Path, tmp_path: Path) -> None:
    write(tmp_path / "secret.jsonl")
    write(folder / "chats.jsonl")
    (folder / "link.jsonl").symlink_to(tmp_path / "secret.jsonl")
    (folder / "empty.jsonl").touch()
    (folder / "weights").mkdir()
    os.mkfifo(folder / "pipe")
    tasks = [train(source) for source in ("chat.jsonl", "../secret.jsonl", "~/x.jsonl", "link.jsonl", "empty.jsonl", "pipe", "*.csv")]
    tasks += [train(model="./weights"), process("python", "prepare.py"), process("cat", "../secret.jsonl")]
    cause = refused(ship, *({**task, "name": f"t{index}"} for index, task in enumerate(tasks)))
    lines = cause.splitlines()
    outside = "lies outside of the JobSpec's folder; only files below it are shipped"
    assert lines == [
        "spec.tasks[0].train.data.source: chat.jsonl: no such file or folder beside the JobSpec (did you mean chats.jsonl?)",
        f"spec.tasks[1].train.data.source: ../secret.jsonl {outside}",
        f"spec.tasks[2].train.data.source: ~/x.jsonl {outside}",
        f"spec.tasks[3].train.data.source: link.jsonl {outside}",
        "spec.tasks[4].train.data.source: empty.jsonl is empty",
        "spec.tasks[5].train.data.source: pipe is neither a file nor a folder",
        "spec.tasks[6].train.data.source: no file matches *.csv",
        "spec.tasks[7].train.model.name: ./weights is not a model: it has no config.json, and no adapter_config.json",
        "spec.tasks[8].process.command[1]: prepare.py: no such file or folder beside the JobSpec",
        f"spec.tasks[9].process.command: ../secret.jsonl {outside}",
    ]


def test_setup_has_no_files(ship: Ship, folder: Path) -> None:
    write(folder / "requirements.txt")
    (folder / "runs").mkdir()
    setup = ["mkdir -p runs/x; hf auth login --token $HF_TOKEN", "pip install -r requirements.txt"]
    assert refused(ship, train(), spec={"setup": setup}) == (
        "spec.setup[1]: names requirements.txt beside the file, and setup runs where no file has been shipped to: put it into the image"
    )


PARTS = [*"ab./*?[=-~$ \0'\";", "parts", "run.py", "x" * 300, "**", "../"]
words = st.lists(st.sampled_from(PARTS), min_size=1, max_size=8).map("".join)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(words, min_size=1, max_size=4))
def test_whatever_is_written_in_a_file_is_shipped_or_refused_with_words(words: list[str], ship: Ship, folder: Path, tmp_path: Path) -> None:
    write(tmp_path / "run.py")
    for name in ("run.py", "parts/a", "a/b.py"):
        write(folder / name, "import run, a.b\n")
    (folder / "..a").unlink(missing_ok=True)
    (folder / "..a").symlink_to("..a")
    tasks = [process(*words), process("true", workingDir=words[0]), train(words[0], model=words[-1], chatTemplate=words[-1])]
    for task in tasks:
        parcels: tuple[Parcel, ...] = ()
        with suppress(CannotShip):
            parcels = ship(task, spec={"setup": words}).parcels
        for parcel in parcels:
            assert parcel.files
            assert all(path.resolve().is_relative_to(folder) for path in parcel.files.values())


def test_a_link_in_a_folder_leads_nowhere_else(ship: Ship, folder: Path, tmp_path: Path) -> None:
    write(tmp_path / "keys/id")
    write(folder / "parts/a.jsonl")
    (folder / "parts/keys").symlink_to(tmp_path / "keys")
    assert "parts/keys lies outside of the JobSpec's folder" in refused(ship, train("parts"))


def test_more_than_the_limit_is_refused_with_what_is_large(ship: Ship, folder: Path) -> None:
    write(folder / "chats.jsonl", "x" * 3000)
    cause = refused(ship, train("chats.jsonl"), train("chats.jsonl") | {"name": "twice"}, limit_bytes=2999)
    assert "chats.jsonl has 3,000 bytes" in cause
    assert "3,000 bytes in all are more than submit ships: 2,999" in cause
    ship(train("chats.jsonl"), train("chats.jsonl") | {"name": "twice"}, limit_bytes=3000)


def test_storage_is_needed_that_a_cluster_reaches(ship: Ship, folder: Path) -> None:
    write(folder / "chats.jsonl")
    assert "the job names no storage" in refused(ship, train("chats.jsonl"), out=None)
    assert "is a folder of this machine" in refused(ship, train("chats.jsonl"), out="runs/first")
    assert "is a folder of a machine" in refused(ship, train("chats.jsonl"), out="/mnt/runs")
    assert ship(train(), out=None).parcels == ()
    assert ship(train("chats.jsonl"), out=None, spec={"storage": {"output": "gs://m/x/"}}).root == "gs://m/x/_shipped"


def test_a_file_that_changes_meanwhile_is_not_left_behind(ship: Ship, folder: Path, tmp_path: Path) -> None:
    for source, changed in (("chats.jsonl", "chats.jsonl"), ("parts", "parts/a.jsonl")):
        write(folder / changed, "one\n")
        shipment = ship(train(source))
        assert shipment.parcels[0].digest
        write(folder / changed, "two\n")
        with pytest.raises(StorageError, match="changed while it was being shipped"):
            sent_to(shipment, tmp_path / "store")
        assert open_store(str(tmp_path / "store")).list() == []


def test_programs_can_be_executed_where_they_arrive(folder: Path, tmp_path: Path) -> None:
    task = JobSpec.model_validate({"metadata": {"name": "x"}, "spec": {"tasks": [process("./run.sh", workingDir="nowhere")]}}).spec.tasks[0]
    assert task.process is not None
    with pytest.raises(BadInput, match="workingDir: there is no folder"):
        working_folder(task.process, folder, tmp_path / "copy")
    write(folder / "file")
    with pytest.raises(BadInput, match=r"there is no folder .*/file"):
        working_folder(task.process.model_copy(update={"working_dir": "file"}), folder, tmp_path / "copy")
    assert fetch_folder(str(folder), tmp_path / "copy") == folder


def test_an_adapter_is_shipped_where_clusters_reach_its_base(ship: Ship, folder: Path) -> None:
    config = write(folder / "adapter" / "adapter_config.json", json.dumps({"base_model_name_or_path": "owner/base"}))
    shipment = ship(train(model="./adapter"))
    assert body(shipment)["train"]["model"]["name"].startswith(OUT)
    config.write_text(json.dumps({"base_model_name_or_path": str(folder)}))
    assert f"./adapter is an adapter of {folder}, a folder of this machine: merge them" in refused(ship, train(model="./adapter"))
    config.write_text("{}")
    assert "./adapter is an adapter that does not name its base model" in refused(ship, train(model="./adapter"))
    config.write_text("[")
    assert "adapter_config.json of ./adapter cannot be read" in refused(ship, train(model="./adapter"))
