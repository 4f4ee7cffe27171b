"""Identifies the inputs of a task by content, so that a result is not reused for other data, or another script, under the same path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from os.path import commonpath, relpath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuneyard.api import ProcessTask, Source, Task
from tuneyard.api.programs import files_below, module_files, program_files
from tuneyard.metrics.own import program_of
from tuneyard.runtime.references import source_of
from tuneyard.storage import absolute, is_local, local_path

if TYPE_CHECKING:
    from tuneyard.data.file_types import DataFile

Inputs = Mapping[str, Mapping[str, Any]]
"""Field -> summary of its files: `files`, `bytes`, `content` (a hash of all), and `each` of the first: name -> [bytes, content]."""
_LISTED = 200
_SCRIPTS = (".py", ".sh", ".bash", ".pl", ".rb", ".R", ".r", ".jl", ".js", ".ts", ".lua", ".sql", ".awk", ".sed")
_SHOWN = 5


def inputs_of(task: Task, base_dir: Path) -> Inputs:
    """The data files of a train or score task, the code of its program, and the scripts of a process task. Products of other tasks, and
    Hugging Face data sets, are left out.

    Local files are read whole; remote files count by the store's facts (size and e-tag, or modification time). Raises BadInput if there is
    no data, StorageError if a store does not answer.
    """
    if task.process is not None:
        scripts = _scripts(task.process, base_dir)
        return {"process.command": _summary({name: [len(content), _hash(content)] for name, content in scripts.items()})} if scripts else {}
    code = _program(task, base_dir) | _harness(task, base_dir)
    given = {field: source for field, source in task.sources().items() if source.source is not None}
    return code | {field: _content(source, base_dir) for field, source in given.items() if not (source.source or "").startswith("hf://")}


def _content(source: Source, base_dir: Path) -> dict[str, Any]:
    from tuneyard.data.sources import locate

    files = locate(source_of(source, base_dir, {}).source or "", file_type=source.file_type, split=source.split).files
    names = _names(files)
    return _summary({name: [file.size_bytes, _identity(file)] for name, file in zip(names, files, strict=True)})


def _summary(each: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """`each`: name -> [bytes, content]."""
    digest = _hash(repr(sorted(each.items())).encode())
    listed = dict(list(each.items())[:_LISTED])
    return {"files": len(each), "bytes": sum(size for size, _ in each.values()), "content": digest, "each": listed}


def _hash(content: bytes) -> str:
    return sha256(content).hexdigest()[:32]


def _scripts(task: ProcessTask, base_dir: Path) -> dict[str, bytes]:
    """Name -> content of the scripts that a command names, and of the modules that they import. Other files do not count: the command may
    read or write them. Nothing if the folder is a URI: its name identifies the content."""
    uri = absolute(task.working_dir, base_dir) if task.working_dir is not None else str(base_dir)
    if not is_local(uri):
        return {}
    folder = local_path(uri)
    found = {path for path in program_files(task.command, folder) if _is_script(path)}
    outside = (Path(word).expanduser() for word in task.command if word.startswith(("/", "~")) and word.endswith(_SCRIPTS))
    return {relpath(path, folder): path.read_bytes() for path in sorted({*found, *(path for path in outside if path.is_file())})}


def _program(task: Task, base_dir: Path) -> dict[str, Any]:
    """The modules of a training program or of own metrics, and the modules beside them that they import. Nothing if their folder is a URI,
    as in `_scripts`."""
    if task.train is not None and task.train.program is not None:
        field, programs, place = "train.program", [task.train.program], task.train.program_dir
    elif task.score is not None and task.score.own_metrics:
        field, programs, place = "score.ownMetrics", [program_of(name) for name in task.score.own_metrics], task.score.metrics_dir
    else:
        return {}
    uri = absolute(place or "", base_dir)
    if not is_local(uri):
        return {}
    folder = local_path(uri)
    paths = sorted({path for program in programs for path in module_files(program, folder)})
    files = {relpath(path, folder): path.read_bytes() for path in paths}
    return {field: _summary({name: [len(content), _hash(content)] for name, content in files.items()})} if files else {}


def _harness(task: Task, base_dir: Path) -> dict[str, Any]:
    """All files of own tasks of lm-evaluation-harness: they name their data and modules by code of their own. Nothing if their folder is a
    URI, as in `_scripts`."""
    folder = task.score.data.lm_eval.folder if task.score is not None and task.score.data.lm_eval is not None else None
    uri = absolute(folder, base_dir) if folder is not None else None
    if uri is None or not is_local(uri):
        return {}
    paths = [path for path in files_below(local_path(uri)) if path.is_file()]
    files = {relpath(path, local_path(uri)): path.read_bytes() for path in paths}
    return {"score.data.lmEval.folder": _summary({name: [len(content), _hash(content)] for name, content in files.items()})}


def _is_script(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return path.suffix in _SCRIPTS or file.read(2) == b"#!"


def _identity(file: DataFile) -> str:
    return file.identity() if file.is_local else file.found.etag


def _names(files: Sequence[DataFile]) -> list[str]:
    """Names relative to the common folder of all files, so that a moved data set is still the same."""
    folder = commonpath([str(Path(file.path).parent) for file in files])
    return [Path(file.path).relative_to(folder).as_posix() for file in files]


def changes(before: Inputs, now: Inputs) -> list[str]:
    """`train.data: chats.jsonl: 1,204 -> 1,310 bytes`, for each field whose files have changed. Fields on one side only are no change: an
    older version may have written the output."""
    different = [field for field in now if field in before and before[field]["content"] != now[field]["content"]]
    return [f"{field}: {_difference(before[field], now[field])}" for field in different]


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    old, new = before["each"], now["each"]
    lines = [f"{name} is gone" for name in old if name not in new]
    lines += [f"{name} is new" for name in new if name not in old]
    for name in (name for name in old if name in new and old[name] != new[name]):
        same_size = old[name][0] == new[name][0]
        lines.append(f"{name}: {'same size, other content' if same_size else f'{old[name][0]:,} -> {new[name][0]:,} bytes'}")
    if not lines or max(before["files"], now["files"]) > _LISTED:
        lines.append(f"{before['files']:,} files of {before['bytes']:,} bytes -> {now['files']:,} files of {now['bytes']:,} bytes")
    more = f"; and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return "; ".join(lines[:_SHOWN]) + more
