"""An export from a model folder to a folder with a GGUF file: written beside its place, proven, then committed as a whole."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from tuneyard.storage.errors import os_errors
from tuneyard.storage.filling import fill, refuse_filled
from tuneyard.storage.staging import staging
from tuneyard.training.export.kinds import Quantize
from tuneyard.training.export.ollama import modelfile
from tuneyard.training.export.proof import Proof, prove
from tuneyard.training.export.vocabulary import vocabulary_of
from tuneyard.training.export.writing import source_of, write_gguf
from tuneyard.training.library_state import clean_libraries


@dataclass(frozen=True)
class Exported:
    """`file`: name of the GGUF file in the folder `uri`. `templates`: whether the Modelfile has the chat template; None without a
    Modelfile, and for models without a template.
    """

    uri: str
    file: str
    kind: Quantize
    size_bytes: int
    proof: Proof
    templates: bool | None


def export_gguf(folder: Path, target: str, *, name: str, kind: Quantize | None, for_ollama: bool) -> Exported:
    """Write the model of `folder` as `target`/NAME-KIND.gguf, with a Modelfile if `for_ollama`, completely or not at all.

    `kind`: default: the type of the folder's weights. Raises BadInput if `target` is not empty or the model cannot be exported, and
    JobFailed if llama.cpp does not compute what transformers does.
    """
    refuse_filled(target)
    temporary = tempfile.TemporaryDirectory(prefix="tuneyard-export-")
    with temporary as scratch, staging(target, Path(scratch)) as staged, clean_libraries():
        source = source_of(folder)
        chosen = kind or source.own_type
        file = f"{name}-{chosen.value}.gguf"
        with os_errors(str(staged), "write"):
            staged.mkdir(parents=True)
            write_gguf(source, staged / file, chosen, name)
        proof = prove(source, staged / file, chosen)
        templates = None
        if for_ollama:
            adds_bos = vocabulary_of(source.tokenizer, int(source.config.vocab_size), source.ends).adds_bos
            text, has_template = modelfile(file, source.tokenizer, source.ends, adds_bos)
            (staged / "Modelfile").write_text(text)
            templates = has_template if source.tokenizer.chat_template is not None else None
        size = (staged / file).stat().st_size
        figures = {"difference": proof.difference, "rounding": proof.rounding}
        fill(target, staged, {"file": file, **figures}, move=True)
    return Exported(target, file, chosen, size, proof, templates)
