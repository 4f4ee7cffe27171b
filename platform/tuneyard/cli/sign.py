"""`tuneyard sign`: sign a model folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuneyard.extras import need


def sign(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="a model folder on this machine, or the output of a task or job")],
    key: Annotated[Path, typer.Option(metavar="FILE", help="private key: elliptic curve P-256, P-384 or P-521, PEM")],
) -> None:
    """Sign a model folder with OpenSSF's model signing: one signature over the hashes of all files, in model.sig.

    `tuneyard verify MODEL --key PUBLIC` checks it, and so does `model_signing verify key`. To make a key:
    openssl ecparam -name prime256v1 -genkey -noout -out key.pem; openssl ec -in key.pem -pubout -out public.pem

    Example: tuneyard sign runs/first/train/model --key key.pem
    """
    need("sign", "tuneyard sign")
    from tuneyard.api import BadInput
    from tuneyard.storage import is_local, local_path
    from tuneyard.training.model_finder import find_place, holds_model
    from tuneyard.training.provenance.signing import sign_folder

    if not is_local(model):
        raise BadInput(f"{model} is not on this machine", "sign the folder that it was copied from, and copy it with its model.sig")
    # Folders of other models, such as a GGUF file's, can be signed too.
    typer.echo(sign_folder(local_path(find_place(model, merged=False) if holds_model(model) else model), key))
