"""`tuneyard merge`: the adapter of a finished task as part of its base model."""

from __future__ import annotations

import logging
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from tuneyard.api import BadInput
from tuneyard.api.quoting import quoted
from tuneyard.extras import need

if TYPE_CHECKING:
    from tuneyard.training.origin import Origin


class Dtype(StrEnum):
    BF16 = "bf16"
    FP16 = "fp16"
    FP32 = "fp32"


def merge(
    run: Annotated[str, typer.Argument(metavar="RUN", help="output of a job or of its task, or the folder of an adapter; a path or a URI")],
    out: Annotated[str, typer.Option(metavar="FOLDER", help="the model folder to write: a new folder, or a URI")],
    task: Annotated[str | None, typer.Option(metavar="NAME", help="the train task; default: the last that has succeeded")] = None,
    base: Annotated[str | None, typer.Option(metavar="MODEL", help="the base model; default: as the adapter names it")] = None,
    dtype: Annotated[Dtype | None, typer.Option(help="of the weights; default: the precision of the run")] = None,
    trust_remote_code: Annotated[bool, typer.Option("--trust-remote-code", help="run Python code that comes with the base")] = False,
) -> None:
    """Merge the adapter of a finished task into its base model, and write a model folder for from_pretrained and vLLM.

    The written model is compared with base and adapter on a few rows of tokens. If it differs by more than rounding does, nothing is
    written. The last line of stdout is FOLDER. Memory: the model in fp32.

    Example: tuneyard merge runs/first --out models/first
    """
    from tuneyard.training.model_finder import find_model

    need("train", "tuneyard merge")
    found = find_model(run, task, merged=False, checked=base is None)
    if found.origin is None:
        raise BadInput(f"{found.uri} is a whole model: there is nothing to merge", "use it as it is, or copy it: tuneyard export")
    merged_folder(found.uri, found.origin, base, out, dtype=dtype, trust=trust_remote_code)
    typer.echo(out)


def merged_folder(adapter: str, origin: Origin, base: str | None, out: str, *, dtype: Dtype | None = None, trust: bool = False) -> None:
    """Merge an adapter into its base, or into `base`, write the model folder `out`, and tell how good it is."""
    from tuneyard.training.model_finder import find_model

    if base:
        whole = find_model(base)
        if whole.origin is not None:
            raise BadInput(f"the base {base} is an adapter itself", f"merge that one first: tuneyard merge {quoted(base)} --out FOLDER")
        origin = replace(origin, base=whole.model_uri, revision=None, from_scratch=False)
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # its import warns of kernels that it would download
    from tuneyard.training.merge_run import merge_run

    print(f"merging {adapter} into {origin.base}", file=sys.stderr)
    with redirect_stdout(sys.stderr):  # DeepSpeed logs to stdout
        made = merge_run(adapter, origin, out, dtype=dtype.value if dtype else None, trust=trust)
    changed = f"the adapter changes the logits of its base by {made.effect:.0e}"
    print(f"merged = adapter, {made.difference:.0e} ({made.dtype} rounds by {made.rounding:.0e}; {changed})", file=sys.stderr)
    if made.is_lost:
        print(f"warning: rounding to {made.dtype} changes as much as the adapter does: --dtype fp32 keeps it", file=sys.stderr)
