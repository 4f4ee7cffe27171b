"""A real data set on every machine: functions of Python's standard library. `python -m tuneyard.data.stdlib OUT`

Files written: train.jsonl (chats: signature and docstring -> body); heldout.parquet (columns prompt and reference, from modules that are
in no other file); text.jsonl (whole modules, for pre-training); model/ (a small Llama shape and a tokenizer trained on that text; no
weights). The same Python gives the same files.
"""

from __future__ import annotations

import ast
import json
import sysconfig
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Annotated

import typer

from tuneyard.data.small_model import SmallLlama, write_model

INSTRUCTION = "Write the body of this Python function."
HELD_OUT_SHARE = 0.06
MAX_PROMPT_CHARS, MAX_BODY_CHARS, MIN_BODY_CHARS = 700, 900, 30
_SKIPPED = {
    "test",
    "tests",
    "site-packages",
    "dist-packages",
    "__pycache__",
    "idlelib",
    "turtledemo",
    "lib2to3",
    "encodings",
    "pydoc_data",
    "ensurepip",
    "__phello__",
}
SHAPE = SmallLlama(hidden=256, ffn=704, layers=6, heads=8, kv_heads=4, vocabulary=4096)
"""5.5 million parameters."""


@dataclass(frozen=True)
class Function:
    """`head`: signature and docstring; `body`: the rest. Both are source text, dedented."""

    module: str
    head: str
    body: str

    @property
    def prompt(self) -> str:
        return f"{INSTRUCTION}\n\n{self.head}"


def modules() -> Iterator[tuple[str, str]]:
    """(name, source) of the standard library's modules, in order of name, without tests and tables."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if any(part in _SKIPPED or part.startswith(("config-", "_sysconfigdata")) for part in parts) or path.stat().st_size > 300_000:
            continue
        try:
            yield ".".join(parts).removesuffix(".py"), path.read_text(encoding="utf-8")
        except UnicodeDecodeError:  # a few old modules are in Latin-1
            continue


def functions(module: str, source: str) -> Iterator[Function]:
    """Functions with a docstring and a body of usable length."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or ast.get_docstring(node) is None or len(node.body) < 2:
            continue
        docstring_end = node.body[0].end_lineno or 0
        head = textwrap.dedent("\n".join(lines[node.lineno - 1 : docstring_end]))
        indented = "\n".join(lines[docstring_end : node.end_lineno]).strip("\n")
        body = "\n".join(line[node.col_offset :] if not line[: node.col_offset].strip() else line for line in indented.splitlines())
        if len(head) <= MAX_PROMPT_CHARS and MIN_BODY_CHARS <= len(body.strip()) <= MAX_BODY_CHARS:
            yield Function(module, head, body)


def held_out(module: str) -> bool:
    """Whether a module's package is held out. Whole packages are, so that no held-out function has a near twin in training."""
    package = module.partition(".")[0]
    return int.from_bytes(blake2b(package.encode(), digest_size=4).digest(), "big") < HELD_OUT_SHARE * 2**32


def build(out: Path, samples: int | None = None, held_out_samples: int = 64) -> dict[str, int]:
    """Write all files below `out`, and return the number of rows of each. `samples`: maximum training chats, evenly over all modules."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    out.mkdir(parents=True, exist_ok=True)
    sources = list(modules())
    unique = {function.body: function for name, source in sources for function in functions(name, source)}
    train = _evenly([f for f in unique.values() if not held_out(f.module)], samples)
    aside = _evenly([f for f in unique.values() if held_out(f.module)], held_out_samples)
    with (out / "train.jsonl").open("w", encoding="utf-8") as stream:
        for function in train:
            turns = [{"role": "user", "content": function.prompt}, {"role": "assistant", "content": function.body}]
            stream.write(json.dumps({"messages": turns, "module": function.module}) + "\n")
    rows = [{"prompt": f.prompt, "reference": f.body, "module": f.module} for f in aside]
    pq.write_table(pa.Table.from_pylist(rows), out / "heldout.parquet")
    texts = [(name, source) for name, source in sources if not held_out(name) and source.strip()]
    with (out / "text.jsonl").open("w", encoding="utf-8") as stream:
        for name, source in texts:
            stream.write(json.dumps({"text": source, "module": name}) + "\n")
    write_model(out / "model", SHAPE, [source for _, source in texts])
    return {"train": len(train), "heldout": len(aside), "modules": len(texts)}


def _evenly(found: list[Function], count: int | None) -> list[Function]:
    if count is None or len(found) <= count:
        return found
    return [found[i * len(found) // count] for i in range(count)]


def main(
    out: Annotated[Path, typer.Argument(help="folder to write to")],
    samples: Annotated[int | None, typer.Option(help="training chats at most")] = None,
    heldout: Annotated[int, typer.Option(help="held-out rows at most")] = 64,
) -> None:
    """Build a data set and a base model from Python's own standard library."""
    counts = build(out, samples, heldout)
    print(f"{counts['train']} chats, {counts['heldout']} held-out prompts, {counts['modules']} modules of text -> {out}")


if __name__ == "__main__":
    typer.run(main)
