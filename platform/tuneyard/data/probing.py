"""Probes of several data sets, in a process of their own unless this one has transformers loaded: the client's commands import neither
torch nor transformers. What a probe found is kept, so that `init`, `validate`, `plan` and `run` of the same data look once.

Of data in a store, the first rows are looked at, always in that process, which is ended after some seconds.

`python -m tuneyard.data.probing` is that process: requests on stdin as JSON, an answer a line on stdout.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput, TrainData, TuneyardError
from tuneyard.api.errors import said_by
from tuneyard.data.kept import facts_of, fields_of, keep, kept, key_of
from tuneyard.data.probe import Probe
from tuneyard.data.read_limit import ReadLimit, first_bytes
from tuneyard.data.samples import Objective
from tuneyard.data.sources import Located, locate
from tuneyard.storage import is_local

_LONGEST_S = 300.0
REMOTE_S, REMOTE_BYTES = 15.0, 32_000_000
"""What a look at data in stores may take, of all stores and of each data set."""
_FOLDER = "probes"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "added_tokens.json")


@dataclass(frozen=True)
class Wanted:
    """A data set to look at. `data`: one set with a resolved source. `tokenizer`: the folder of its files."""

    data: TrainData
    objective: Objective
    tokenizer: Path

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> Wanted:
        return cls(TrainData.model_validate(request["data"]), request["objective"], Path(request["tokenizer"]))

    def request(self) -> dict[str, Any]:
        """As JSON, for another process."""
        return {"data": fields_of(self.data), "objective": self.objective, "tokenizer": str(self.tokenizer)}

    @property
    def is_remote(self) -> bool:
        return not is_local(self.data.source or "")

    def key(self, located: Located | None = None) -> str:
        """The name of the result: a hash of all that it depends on. Raises BadInput."""
        tokenizer = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in self._files()]
        return key_of(_VERSION, self.objective, str(self.tokenizer), tokenizer, facts_of(self.data, located))

    def _files(self) -> list[Path]:
        return [path for name in _TOKENIZER_FILES if (path := self.tokenizer / name).is_file()]


_VERSION = 3
"""Of the look: what an earlier one has found is not taken."""
Found = Probe | BadInput | str
"""A probe, the fault of the data or the tokenizer, or the reason why nothing was looked at."""


def probe_all(wanted: Sequence[Wanted]) -> list[Found]:
    """What was found in each data set."""
    found: dict[int, Found] = {}
    keys: dict[int, str] = {}
    for number, each in enumerate(wanted):
        if each.is_remote:
            continue
        try:
            keys[number] = each.key()
        except BadInput as error:
            found[number] = error
            continue
        if (answer := kept(_FOLDER, keys[number])) is not None:
            found[number] = _read(answer)
    remote = [number for number, each in enumerate(wanted) if each.is_remote]
    here = [number for number in range(len(wanted)) if number not in found and number not in remote]
    for number, answer in zip(here, _asked([wanted[number].request() for number in here]) if here else (), strict=True):
        found[number] = _read(answer)
        if "probe" in answer:  # an error may be of this install, or of permissions, which the key does not know
            keep(_FOLDER, keys[number], answer)
    for number, answer in zip(remote, _asked_apart([wanted[number].request() for number in remote], REMOTE_S), strict=True):
        found[number] = _read(answer)
    return [found[number] for number in range(len(wanted))]


def _asked(requests: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Answers to requests."""
    if "transformers" in sys.modules:
        return [_answer(request) for request in requests]
    return _asked_apart(requests, _LONGEST_S)


def _asked_apart(requests: Sequence[Mapping[str, Any]], longest_s: float) -> list[dict[str, Any]]:
    """Answers of another process, which is ended after `longest_s`: clients of stores try again for minutes."""
    if not requests:
        return []
    if find_spec("transformers") is None or find_spec("trl") is None:
        return [{"failure": "it needs the extra train (pip install 'tuneyard[train]')"}] * len(requests)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, "-P", "-m", "tuneyard.data.probing"]  # no file of the working folder is run
    try:
        asked = json.dumps(requests).encode()
        done = subprocess.run(command, input=asked, capture_output=True, timeout=longest_s, env=environment, check=False)
        said, why = done.stdout, _last_words(done)
    except subprocess.TimeoutExpired as late:
        said, why = late.stdout or b"", f"it took longer than {longest_s:.0f} s"
    answers: list[dict[str, Any]] = [json.loads(line) for line in said.splitlines(keepends=True) if line.endswith(b"\n")]
    return answers + [{"failure": why}] * (len(requests) - len(answers))


def _last_words(done: subprocess.CompletedProcess[bytes]) -> str:
    said = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
    return f"the process that looks ended: {said[-1][:200]}"


def _answer_remote(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer for data in a store, from its first rows. That a store cannot be reached from here is a reason, because the ranks may be
    elsewhere.
    """
    wanted = Wanted.of(request)
    with first_bytes(REMOTE_BYTES):
        try:
            data = wanted.data
            key = wanted.key(locate(data.source or "", file_type=data.file_type, split=data.split, sheet=data.sheet))
        except TuneyardError as error:
            return {"failure": error.cause.splitlines()[0]}
        except ReadLimit as error:
            return {"failure": str(error)}
        answer: dict[str, Any] | None = kept(_FOLDER, key)
        if answer is None:
            answer = _answer(request)
            if "probe" in answer:
                keep(_FOLDER, key, answer)
    return answer


def _answer(request: Mapping[str, Any]) -> dict[str, Any]:
    from transformers import AutoTokenizer

    from tuneyard.data.probe import probe

    try:
        tokenizer = AutoTokenizer.from_pretrained(request["tokenizer"])
    except (OSError, ValueError, ImportError) as error:
        return {"failure": f"the tokenizer cannot be loaded: {said_by(error)}"}
    try:
        found = probe(TrainData.model_validate(request["data"]), tokenizer, objective=request["objective"])
        return {"probe": found.to_dict()}
    except BadInput as error:
        return {"error": [error.cause, error.next_step]}
    except Exception as error:  # noqa: BLE001 - a fault of the look must not stop a job that may work; the ranks tell their own
        return {"failure": f"{type(error).__name__}: {said_by(error)}"}


def _read(answer: Mapping[str, Any]) -> Found:
    if "probe" in answer:
        return Probe(**answer["probe"])
    return BadInput(*answer["error"]) if "error" in answer else str(answer["failure"])


def _main() -> None:
    sys.modules["torch"] = None  # type: ignore[assignment]  # tokenizers work without it, and its import takes longer than the look
    answers = sys.stdout
    with redirect_stdout(sys.stderr):
        for request in json.load(sys.stdin):
            answer = _answer_remote(request) if Wanted.of(request).is_remote else _answer(request)
            print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    _main()
