"""Compares a model folder, and what it was made from, with the certificate in it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from tuneyard import data
from tuneyard.api import BadInput
from tuneyard.api.local_files import looks_like_path
from tuneyard.storage import MANIFEST, CommitLog, Store, fetch_folder, open_store
from tuneyard.storage.marks import hash_of
from tuneyard.training.checkpoint.catalogue import commit_of, verify
from tuneyard.training.checkpoint.convert import bring
from tuneyard.training.checkpoint.layout import LOG, MODEL
from tuneyard.training.checkpoint.pieces import WEIGHT
from tuneyard.training.checkpoint.reader import Reader
from tuneyard.training.checkpoint.stored import read_indices, read_manifest, read_state
from tuneyard.training.models import load_tokenizer
from tuneyard.training.origin import Origin
from tuneyard.training.proofs.saved import OF_A_SAVE
from tuneyard.training.provenance.certificate import FILE, SIGNATURE, Certificate, file_hashes, local_base, request_from_dict
from tuneyard.training.provenance.findings import Finding, compared, tried
from tuneyard.training.provenance.merged import Sum, adapter_of_run, compare_with_sum
from tuneyard.training.request import TrainRequest

_NAMED = 3


@dataclass(frozen=True)
class Subject:
    """A local copy of a model folder with its certificate. `run`: the output of its task; None if the model lies elsewhere now."""

    folder: Path
    certificate: Certificate
    run: Store | None
    trust_remote_code: bool = False
    """Whether the user allows Python code that comes with the model or its base. The certificate alone does not."""

    @property
    def is_merged(self) -> bool:
        """Whether the model is the sum of a base and an adapter."""
        full = set(self.certificate.request["task"].get("method", {"full": {}})) == {"full"}
        return not full and not (self.folder / "adapter_config.json").is_file()

    @property
    def needs_code(self) -> bool:
        """Whether the run needed code that is not allowed here."""
        return bool(self.certificate.request["task"].get("model", {}).get("trustRemoteCode")) and not self.trust_remote_code

    def request(self, scratch: Path) -> TrainRequest:
        request = request_from_dict(self.certificate.request, output=str(scratch / "out"), scratch=str(scratch))
        model = request.task.model.model_copy(update={"trust_remote_code": self.trust_remote_code})
        return replace(request, task=request.task.model_copy(update={"model": model}))


def open_subject(uri: str, scratch: Path, *, trust_remote_code: bool = False) -> Subject:
    """The model in the folder `uri`. Raises BadInput for one without a certificate."""
    folder = fetch_folder(uri, scratch / "model")
    if not (folder / FILE).is_file():
        raise BadInput(
            f"{uri} has no {FILE}",
            "name the model folder of a train task that this version trained; programs and rankers have no certificate",
        )
    certificate = Certificate.from_json((folder / FILE).read_text(), f"{uri}/{FILE}")
    parent = open_store(uri.rpartition("/")[0] or "/")
    return Subject(folder, certificate, parent if parent.list(LOG) else None, trust_remote_code)


def check(subject: Subject, scratch: Path) -> Iterator[Finding]:
    """All comparisons but the signature, each as soon as it is made."""
    yield tried("files", lambda: _files(subject))
    yield tried("base", lambda: _base(subject, scratch))
    yield tried("data", lambda: _data(subject, scratch))
    if subject.run is None:
        why = "the model lies outside of the output of its run"
        yield from (Finding(about, "not checked", why) for about in ("checkpoints", "weights", "log"))
        return
    run = subject.run
    yield tried("checkpoints", lambda: _checkpoints(run, subject.certificate))
    yield tried("weights", lambda: _weights(run, subject, scratch))
    yield tried("log", lambda: _log(run, subject.certificate))


def _files(subject: Subject) -> Finding:
    named, there = subject.certificate.files, file_hashes(subject.folder, hidden=True)
    differs = compared(named, there)
    manifest = open_store(str(subject.folder))
    if not differs and manifest.exists(MANIFEST):
        listed = {file.path: file.sha256 for file in manifest.manifest("").files}
        beside = {
            name: hash_of(subject.folder / name) for name in (FILE, SIGNATURE) if name in listed and (subject.folder / name).is_file()
        }
        differs = compared(listed, there | beside)
    return Finding("files", "failed", differs) if differs else Finding("files", "ok", f"{len(named)} files as they were written")


def _base(subject: Subject, scratch: Path) -> Finding:
    named, uri = subject.certificate.base, str(subject.certificate.request["model_uri"])
    if not named:
        task = subject.certificate.request["task"]
        if task.get("model", {}).get("init") == "scratch" or subject.certificate.request.get("adapter_uri"):
            return Finding("base", "not checked", "the run made its starting weights itself, from its seed or from an adapter")
        return Finding("base", "failed", "the certificate names no file of the base")
    folder = local_base(subject.request(scratch), str(fetch_folder(uri, scratch / "base")) if looks_like_path(uri) else uri)
    if folder is None:
        return Finding("base", "not checked", f"{uri} is not on this machine")
    there = file_hashes(folder)
    differs = compared(named, {path: there[path] for path in there if path in named})
    return Finding("base", "failed", f"{uri}: {differs}") if differs else Finding("base", "ok", f"{uri}: {len(named)} files as they were")


def _data(subject: Subject, scratch: Path) -> Finding:
    """Prepare the data again, and compare their content."""
    request, then = subject.request(scratch), subject.certificate.data
    uri = request.model_uri
    start = str(fetch_folder(uri, scratch / "base")) if looks_like_path(uri) else uri
    tokenizer = load_tokenizer(request, start)
    how: Any = {"objective": request.task.objective, "seed": request.task.seed}
    kept = data.ways_before(then["cursors"], then.get("ways"))
    trained_on = request.task.data.model_copy(update={"validation": None})
    ways = data.choose_ways(trained_on, tokenizer, steps=request.task.steps, kept=kept, **how)
    prepared = data.prepare(trained_on, tokenizer, task=request.name, ways=ways, **how)
    try:
        unproven = prepared.place(then["cursors"], then["contents"])
    except BadInput as error:
        return Finding("data", "failed", error.cause)
    if unproven is not None:
        return Finding("data", "not checked", unproven)
    same = (
        "the same files by size, and a sample of them is the same" if prepared.streams else f"the same {prepared.report.samples:,} samples"
    )
    return Finding("data", "ok", f"{prepared.report.source}: {same}")


def _checkpoints(run: Store, certificate: Certificate) -> Finding:
    committed = {commit.step: commit.sha256 for commit in CommitLog(run, LOG).read().commits}
    forged = [each["step"] for each in certificate.checkpoints if committed.get(each["step"]) != each["sha256"]]
    if forged:
        return Finding("checkpoints", "failed", f"the commit log names other content for step {', '.join(map(str, forged[:_NAMED]))}")
    there = [each for each in certificate.checkpoints if run.list(each["name"])]
    damages = [f"{damage.path} {damage.reason}" for each in there for damage in verify(run, step=each["step"]).damages]
    if damages:
        return Finding("checkpoints", "failed", "; ".join(damages[:_NAMED]))
    if not there:
        return Finding("checkpoints", "not checked", "none of the run is kept")
    return Finding("checkpoints", "ok", f"steps {', '.join(str(each['step']) for each in there)} are whole")


def _weights(run: Store, subject: Subject, scratch: Path) -> Finding:
    """Whether the model holds the weights of the checkpoint of its step, and the settings that the run stored before it. A merged model
    holds the sum of the base and the adapter of that checkpoint.
    """
    step = subject.certificate.step
    if step not in subject.certificate.steps:
        return Finding("weights", "failed", f"the certificate names no checkpoint of step {step}")
    if changed := _changed_settings(run, subject.folder):
        return Finding("weights", "failed", f"the run stored other settings before it trained: {', '.join(changed[:_NAMED])}")
    is_kept = any(int(each["step"]) == step and run.list(str(each["name"])) for each in subject.certificate.checkpoints)
    reader = checkpoint_reader(run, step, subject.folder.parent / "checkpoint") if is_kept else None
    if subject.is_merged:
        return _merged(run, subject, reader, scratch)
    if reader is None:
        return _not_kept(step)
    if not (subject.folder / "adapter_config.json").is_file():
        return _full_weights(subject, reader, step)
    names: Mapping[str, str] = run.manifest(MODEL).extra.get("names", {})
    with safe_open(subject.folder / "adapter_model.safetensors", "pt") as file:
        other = [saved for name, saved in names.items() if not _same(reader.whole(name, WEIGHT), file.get_tensor(saved))]
    return _told(other, len(names), step)


def _not_kept(step: int) -> Finding:
    return Finding("weights", "not checked", f"the checkpoint of step {step} is not kept")


def _merged(run: Store, subject: Subject, reader: Reader | None, scratch: Path) -> Finding:
    if subject.needs_code:
        return Finding("weights", "not checked", "the model comes with Python code: --trust-remote-code runs it")
    request = subject.request(scratch)
    uri, precision, step = request.model_uri, request.plan.precision, subject.certificate.step
    base = local_base(request, str(fetch_folder(uri, scratch / "base")) if looks_like_path(uri) else uri)
    if base is None:
        return Finding("weights", "not checked", f"{uri} is not on this machine, or the run made its starting weights itself")
    adapter = adapter_of_run(run, reader, request.plan, scratch)
    if adapter is None:
        return _not_kept(step)
    words = f"the adapter of step {step}" if reader is not None else "the adapter beside it"
    made = Sum(str(base), adapter, Origin.of(request.task, uri, precision), precision, words)
    return compare_with_sum(subject.folder, made, trust=subject.trust_remote_code)


def _changed_settings(run: Store, folder: Path) -> list[str]:
    """Fields of the configuration that differ from the one beside the checkpoints."""
    name = "adapter_config.json" if (folder / "adapter_config.json").is_file() else "config.json"
    if not run.exists(f"{MODEL}/{name}") or not (folder / name).is_file():
        return []
    then, now = json.loads(run.get(f"{MODEL}/{name}")), json.loads((folder / name).read_text())
    if name == "config.json" and run.exists(f"{MODEL}/adapter_config.json"):
        return []  # of a merged model
    return sorted(field for field in (then.keys() | now.keys()) - OF_A_SAVE if _in_order(then.get(field)) != _in_order(now.get(field)))


def _in_order(value: Any) -> Any:
    """PEFT keeps names of modules as sets."""
    return sorted(value) if isinstance(value, list) and all(isinstance(each, str) for each in value) else value


def _full_weights(subject: Subject, reader: Reader, step: int) -> Finding:
    from transformers import AutoModelForCausalLM

    if subject.needs_code:
        return Finding("weights", "not checked", "the model comes with Python code: --trust-remote-code runs it")
    trust = subject.trust_remote_code
    there = AutoModelForCausalLM.from_pretrained(subject.folder, dtype="auto", trust_remote_code=trust).state_dict()
    other = [name for name in reader.shapes if name not in there or not _same(reader.whole(name, WEIGHT), there[name])]
    return _told(other, len(reader.shapes), step)


def _told(other: list[str], count: int, step: int) -> Finding:
    if other:
        return Finding(
            "weights", "failed", f"{len(other)} of {count} differ from the checkpoint of step {step}: {', '.join(other[:_NAMED])}"
        )
    return Finding("weights", "ok", f"{count} weights are those of the checkpoint of step {step}, bit for bit")


def _same(trained: torch.Tensor, saved: torch.Tensor) -> bool:
    return trained.shape == saved.shape and bool(torch.equal(trained.to(saved.dtype), saved))


def _log(run: Store, certificate: Certificate) -> Finding:
    """Whether the result of the task, and the last checkpoint, name the losses of the certificate."""
    with suppress(BadInput):
        commit = commit_of(run, max(certificate.steps, default=0))
        told = read_state(run, commit, read_manifest(run, commit))["progress"]["losses"]
        if told != list(certificate.losses)[: len(told)]:
            return Finding("log", "failed", f"the checkpoint of step {commit.step} has other losses")
    if not run.exists("result.json"):
        return Finding("log", "not checked", "there is no result.json beside the model")
    losses, evaluations = list(certificate.losses), list(certificate.evaluations)
    with suppress(ValueError, KeyError, TypeError):
        result: Any = json.loads(run.get("result.json"))
        if result["losses"] == losses and result["eval_losses"] == evaluations:
            return Finding("log", "ok", f"result.json has the same {len(losses)} losses and {len(evaluations)} evaluations")
    return Finding("log", "failed", "result.json has other losses or evaluations, or is damaged")


def checkpoint_reader(run: Store, step: int, folder: Path) -> Reader:
    """Reads the committed checkpoint of `step`, copied to `folder` if the store is remote. Raises StorageError if it is damaged."""
    commit = commit_of(run, step)
    manifest = read_manifest(run, commit)
    indices = read_indices(run, commit, manifest)
    return Reader(bring(run, commit.name, manifest, indices, folder, None), indices)
