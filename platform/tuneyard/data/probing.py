"""Probes of several data sets, in a process of their own unless this one has transformers loaded: the client's commands import neither
torch nor transformers. What a probe found is kept, so that `init`, `validate`, `plan` and `run` of the same data look once.

`python -m tuneyard.data.probing` is that process: requests on stdin, answers on stdout, as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput, TrainData
from tuneyard.data.cache import cache_root
from tuneyard.data.chat import template_text
from tuneyard.data.preparation import CODE_VERSION
from tuneyard.data.probe import Probe
from tuneyard.data.samples import Objective
from tuneyard.data.sources import locate

_LONGEST_S = 300.0
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "added_tokens.json")


_NO_PART = {
    *("max_length", "overlong", "pack", "validation_fraction", "validation", "max_bad_fraction", "show_sample", "shuffle", "mix"),
    *("streaming", "workers", "service", "temperature", "when_exhausted"),
}
"""Fields that change no sample: another maxLength needs no other look."""


@dataclass(frozen=True)
class Wanted:
    """A data set to look at. `data`: one set with a resolved, local source. `tokenizer`: the folder of its files."""

    data: TrainData
    objective: Objective
    tokenizer: Path

    def request(self) -> dict[str, Any]:
        """As JSON, for another process."""
        data = self.data.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True, exclude=_NO_PART)
        return {"data": data, "objective": self.objective, "tokenizer": str(self.tokenizer)}

    def key(self) -> str:
        """The name of the result: a hash of all that it depends on. Raises BadInput."""
        located = locate(self.data.source or "", file_type=self.data.file_type, split=self.data.split, sheet=self.data.sheet)
        files = [(file.reader, file.uri, file.found.mark, file.size_bytes) for file in located.files]
        tokenizer = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in self._files()]
        template = template_text(self.data.chat_template) if self.data.chat_template else None
        known = [CODE_VERSION, _VERSION, self.request(), files, tokenizer, template]
        return sha256(json.dumps(known, default=str).encode()).hexdigest()[:32]

    def _files(self) -> list[Path]:
        return [path for name in _TOKENIZER_FILES if (path := self.tokenizer / name).is_file()]


_VERSION = 2
"""Of the look: what an earlier one has found is not taken."""
Found = Probe | BadInput | str
"""A probe, the fault of the data or the tokenizer, or the reason why nothing was looked at."""


def probe_all(wanted: Sequence[Wanted]) -> list[Found]:
    """What was found in each data set."""
    found: dict[int, Found] = {}
    keys: dict[int, str] = {}
    for number, each in enumerate(wanted):
        try:
            keys[number] = each.key()
        except BadInput as error:
            found[number] = error
            continue
        if (kept := _kept(keys[number])) is not None:
            found[number] = kept
    left = [number for number in range(len(wanted)) if number not in found]
    for number, answer in zip(left, _asked([wanted[number].request() for number in left]) if left else (), strict=True):
        found[number] = _read(answer)
        if "probe" in answer:  # an error may be of this install, or of permissions, which the key does not know
            _keep(keys[number], answer)
    return [found[number] for number in range(len(wanted))]


def _asked(requests: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Answers to requests."""
    if "transformers" in sys.modules:
        return [_answer(request) for request in requests]
    if find_spec("transformers") is None or find_spec("trl") is None:
        return [{"failure": "it needs the extra train (pip install 'tuneyard[train]')"}] * len(requests)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, "-P", "-m", "tuneyard.data.probing"]  # no file of the working folder is run
    try:
        done = subprocess.run(
            command, input=json.dumps(requests), capture_output=True, text=True, timeout=_LONGEST_S, env=environment, check=False
        )
        answers: list[dict[str, Any]] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return [{"failure": f"it took longer than {_LONGEST_S:.0f} s"}] * len(requests)
    except ValueError:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return [{"failure": f"the process that looks ended: {said[:200]}"}] * len(requests)
    return answers


def _answer(request: Mapping[str, Any]) -> dict[str, Any]:
    from transformers import AutoTokenizer

    from tuneyard.data.probe import probe

    try:
        tokenizer = AutoTokenizer.from_pretrained(request["tokenizer"])
    except (OSError, ValueError, ImportError) as error:
        return {"failure": f"the tokenizer cannot be loaded: {(str(error).splitlines() or [''])[0][:200]}"}
    try:
        found = probe(TrainData.model_validate(request["data"]), tokenizer, objective=request["objective"])
        return {"probe": found.to_dict()}
    except BadInput as error:
        return {"error": [error.cause, error.next_step]}
    except Exception as error:  # noqa: BLE001 - a fault of the look must not stop a job that may work; the ranks tell their own
        return {"failure": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"}


def _read(answer: Mapping[str, Any]) -> Found:
    if "probe" in answer:
        return Probe(**answer["probe"])
    return BadInput(*answer["error"]) if "error" in answer else str(answer["failure"])


def _place(key: str) -> Path:
    return cache_root() / "probes" / f"{key}.json"


def _kept(key: str) -> Found | None:
    with suppress(OSError, ValueError, TypeError, KeyError):
        return _read(json.loads(_place(key).read_text()))
    return None


def _keep(key: str, answer: Mapping[str, Any]) -> None:
    """Keep an answer. A disk that is full or read-only costs the next look alone."""
    with suppress(OSError):
        _place(key).parent.mkdir(parents=True, exist_ok=True)
        beside = _place(key).with_suffix(f".{os.getpid()}")
        beside.write_text(json.dumps(answer))
        beside.replace(_place(key))


def _main() -> None:
    sys.modules["torch"] = None  # type: ignore[assignment]  # tokenizers work without it, and its import takes longer than the look
    with redirect_stdout(sys.stderr):
        answers = [_answer(request) for request in json.load(sys.stdin)]
    print(json.dumps(answers))


if __name__ == "__main__":
    _main()
