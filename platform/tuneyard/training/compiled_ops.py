"""DeepSpeed's C++ libraries, compiled once per machine and cached by a hash of their inputs.

torch compiles into a folder per name. Each virtual environment then compiles anew, which takes minutes, and a process that is killed during
compilation leaves a lock that every later process waits for without end. Here the name is a hash of sources, libraries, compiler and
processor, and a lock ends with its process.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from tuneyard.data import cache_root, cached_folder


def load_op(builder: Any, on_compile: Callable[[], None]) -> None:
    """Load a library of DeepSpeed into this process, under the name by which DeepSpeed finds it.

    `builder`: its `OpBuilder`; `on_compile` is called before a compilation. Raises the errors of compilers and loaders: RuntimeError,
    OSError, ImportError, AssertionError, CalledProcessError; and StorageError.
    """
    from deepspeed.git_version_info import installed_ops

    loaded = _loaded_by(builder)
    if builder.name not in loaded and not installed_ops.get(builder.name, False):

        def build(folder: Path) -> None:
            on_compile()
            _compile(builder, folder)

        entry, _ = cached_folder(cache_root() / "compiled", _key(builder), build)
        library = entry / f"{builder.name}.so"
        if builder.name in loaded:  # compiled and loaded here, in a folder that now has another name
            loaded[builder.name].__file__ = str(library)
        else:
            loaded[builder.name] = _imported(builder.name, library)
    builder.load(verbose=False)


def _loaded_by(builder: Any) -> dict[str, Any]:
    """Libraries that DeepSpeed has loaded in this process: name -> module."""
    found: dict[str, Any] = next(vars(kind)["_loaded_ops"] for kind in type(builder).__mro__ if "_loaded_ops" in vars(kind))
    return found


def _imported(name: str, library: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, library)
    if spec is None or spec.loader is None:
        raise ImportError(f"{library} is no library for this Python")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _compile(builder: Any, folder: Path) -> None:
    """Compile and load. Only the library is left in the folder."""
    work = folder / "work"
    work.mkdir()
    with _compiling_in(work):
        module = builder.load(verbose=False)
    Path(module.__file__).rename(folder / f"{builder.name}.so")
    shutil.rmtree(work)


@contextmanager
def _compiling_in(folder: Path) -> Iterator[None]:
    before = os.environ.get("TORCH_EXTENSIONS_DIR")
    os.environ["TORCH_EXTENSIONS_DIR"] = str(folder)
    try:
        yield
    finally:
        del os.environ["TORCH_EXTENSIONS_DIR"]
        if before is not None:
            os.environ["TORCH_EXTENSIONS_DIR"] = before


def _key(builder: Any) -> dict[str, Any]:
    """All inputs that a library depends on."""
    import torch
    import torch.utils.cpp_extension  # DeepSpeed's builders use it without importing it
    from deepspeed.ops.op_builder.builder import CUDAOpBuilder

    with_cuda = isinstance(builder, CUDAOpBuilder) and torch.cuda.is_available()
    return {
        "op": builder.name,
        "sources": _content_of(builder),
        "torch": torch.__version__,
        "cuda": torch.version.cuda if with_cuda else None,
        "python": sysconfig.get_config_var("SOABI"),
        "compiler": _compiler(),
        "flags": {name: os.environ.get(name) for name in ("CFLAGS", "CXXFLAGS", "LDFLAGS")},
        "processor": _processor(),
    }


def _content_of(builder: Any) -> str:
    """Hash of DeepSpeed's sources and headers."""
    digest = sha256()
    files = [Path(builder.deepspeed_src_path(path)) for path in builder.sources()]
    folders = [Path(builder.deepspeed_src_path(path)) for path in builder.include_paths() if path and not os.path.isabs(path)]
    for path in sorted({*files, *(path for folder in folders for path in folder.glob("*.h"))}):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def _compiler() -> str | None:
    """The compiler's version line; None without a compiler, which compilation will report."""
    try:
        said = subprocess.run([os.environ.get("CXX", "c++"), "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return said.splitlines()[0]


def _processor() -> str:
    """Features of the processor: DeepSpeed compiles for the local processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    facts = [line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))]
    return sha256("\n".join(sorted(set(facts))).encode()).hexdigest()
