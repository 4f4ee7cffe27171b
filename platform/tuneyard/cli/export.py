"""`tuneyard export`: a finished model in the form that another program reads."""

from __future__ import annotations

import logging
import sys
import tempfile
from contextlib import redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuneyard.api import BadInput
from tuneyard.api.quoting import quoted
from tuneyard.extras import need
from tuneyard.training.export.kinds import Quantize

if TYPE_CHECKING:
    from tuneyard.training.export.run import Exported


class Form(StrEnum):
    MERGED = "merged"
    GGUF = "gguf"
    OLLAMA = "ollama"


def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="output of a job or of its task, or a model folder; a path or a URI")],
    form: Annotated[Form, typer.Option("--format", help="merged: a model folder; gguf: for llama.cpp; ollama: with a Modelfile")],
    out: Annotated[str, typer.Option(metavar="FOLDER", help="the folder to write: a new folder, or a URI")],
    quantize: Annotated[Quantize | None, typer.Option(help="type of the weights in GGUF; default: as the model has them")] = None,
    task: Annotated[str | None, typer.Option(metavar="NAME", help="the train task; default: the last that has succeeded")] = None,
    base: Annotated[str | None, typer.Option(metavar="MODEL", help="the base of an adapter; default: as the adapter names it")] = None,
    trust_remote_code: Annotated[bool, typer.Option("--trust-remote-code", help="run Python code that comes with the base")] = False,
) -> None:
    """Write a finished model as a model folder, a GGUF file, or a GGUF file with a Modelfile for Ollama.

    An adapter is merged into its base first, as `tuneyard merge` does; a whole model is taken as it is. llama.cpp then loads the GGUF
    file and answers a few prompts: if its tokens or its answers are not those of transformers, nothing is written. The last line of stdout
    is FOLDER.

    Example: tuneyard export runs/first --format gguf --quantize q8_0 --out models/first-gguf
    """
    if form is Form.MERGED and quantize is not None:
        advice = "leave it out; `tuneyard merge --dtype` sets the type of a merged model"
        raise BadInput("--quantize is for --format gguf and ollama", advice)
    need("train", "tuneyard export")
    if form is not Form.MERGED:
        need("gguf", f"tuneyard export --format {form.value}")
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # its import warns of kernels that it would download
    from tuneyard.cli.merge import merged_folder
    from tuneyard.runtime.model_folders import folders_of
    from tuneyard.storage import local_path
    from tuneyard.storage.filling import fill, refuse_filled
    from tuneyard.training.export.run import export_gguf
    from tuneyard.training.model_finder import find_model

    found = find_model(run, task, merged=base is None, checked=base is None)
    if base is not None and found.origin is None:
        raise BadInput(f"--base is for adapters, and {found.uri} is a whole model", "leave it out")
    refuse_filled(out)
    with tempfile.TemporaryDirectory(prefix="tuneyard-export-") as scratch, redirect_stdout(sys.stderr):  # DeepSpeed logs to stdout
        folder = Path(scratch) / "merged"
        if found.origin is not None:
            merged_folder(found.uri, found.origin, base, out if form is Form.MERGED else str(folder), trust=trust_remote_code)
        else:
            folder = folders_of(found, Path(scratch) / "model").model
            if form is Form.MERGED:
                print(f"copying the whole model {found.uri}", file=sys.stderr)
                fill(out, folder, {})
        if form is not Form.MERGED:
            print(f"writing {form.value} of {found.uri}, and answering with llama.cpp", file=sys.stderr)
            name = local_path(out).absolute().name if "://" not in out else out.rstrip("/").rpartition("/")[2]
            _tell(export_gguf(folder, out, name=name or "model", kind=quantize, for_ollama=form is Form.OLLAMA), form)
    typer.echo(out)


def _tell(made: Exported, form: Form) -> None:
    proof = made.proof
    words = f"{proof.same} of {proof.predicted} greedy tokens are those of transformers"
    figures = f"log-probabilities differ by {proof.difference:.0e}, and {made.kind.value} rounds by {proof.rounding:.0e}"
    print(f"{made.file}: {made.size_bytes / 1e6:,.1f} MB; llama.cpp: {words}; {figures}", file=sys.stderr)
    if proof.renders is False:
        print("warning: llama.cpp writes another prompt from this chat template: send prompts as text, or check its chats", file=sys.stderr)
    if form is Form.OLLAMA and made.templates is False:
        told = "its chat template does more than put messages between fixed texts, so the Modelfile has none"
        print(f"warning: {told}: write TEMPLATE in the Modelfile, or use llama.cpp, which runs the template itself", file=sys.stderr)
    if form is Form.OLLAMA:
        print(f"next: cd {quoted(made.uri)} && ollama create NAME -f Modelfile && ollama run NAME", file=sys.stderr)
