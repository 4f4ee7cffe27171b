"""Signatures of model folders, by OpenSSF's model signing: one signature over the hashes of all files, which its own tools verify too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tuneyard.api import BadInput
from tuneyard.extras import need
from tuneyard.storage import MANIFEST
from tuneyard.training.provenance.certificate import SIGNATURE
from tuneyard.training.provenance.findings import Finding

KEY = "TUNEYARD_SIGNING_KEY"
"""Environment variable with the private key, or its path: each model that a run saves is signed with it."""
_MAKE = "make one: openssl ecparam -name prime256v1 -genkey -noout -out key.pem"


@contextmanager
def given_key() -> Iterator[Path | None]:
    """The private key of the environment, as a file; None if there is none. Raises BadInput for one that cannot be used."""
    value = os.environ.get(KEY, "")
    if not value:
        yield None
        return
    need("sign", f"a signature ({KEY})")
    with TemporaryDirectory(prefix="tuneyard-key-") as folder:
        path = Path(value)
        if value.lstrip().startswith("-----BEGIN"):
            path = Path(folder) / "key.pem"
            path.touch(mode=0o600)
            path.write_text(value)
        _signer(path)
        yield path


def sign_folder(folder: Path, key: Path) -> Path:
    """Write the signature of a model folder into it, and return its path. Raises BadInput for a key or folder that cannot be used."""
    if not folder.is_dir():
        raise BadInput(f"there is no folder {folder}", "give a model folder on this machine")
    signer, whole = _signer(key), folder.absolute()  # the library takes relative paths to ignore as those below the folder
    signer.set_hashing_config(_hashing(whole)).sign(whole, whole / SIGNATURE)
    return folder / SIGNATURE


def check_signature(folder: Path, key: Path | None) -> Finding:
    """Compare a folder with its signature. `key`: the public key. Raises BadInput for a key that cannot be read."""
    folder = folder.absolute()
    signature = folder / SIGNATURE
    if key is None:
        why = "give the public key of the signer: --key FILE" if signature.exists() else "the model is not signed"
        return Finding("signature", "not checked", why)
    need("sign", "a signature")
    from model_signing import verifying

    try:
        verifier = verifying.Config().use_elliptic_key_verifier(public_key=key)
    except (OSError, ValueError) as error:
        raise BadInput(f"{key} is not a public key: {error}", "give a PEM file: openssl ec -in key.pem -pubout -out public.pem") from error
    if not signature.exists():
        return Finding("signature", "failed", f"the model has no {SIGNATURE}")
    try:
        verifier.set_hashing_config(_hashing(folder)).verify(folder, signature)
    except Exception as error:  # noqa: BLE001 - the library has an error of its own for each way in which a signature can be wrong
        there = [str(path.relative_to(folder)) for path in sorted(folder.rglob("*")) if path.is_file()]
        files = [name for name in there if name in str(error)]  # the library's message holds raw bytes beside them
        changed = f", or these files have changed: {', '.join(files)}" if files else ""
        return Finding("signature", "failed", f"not that of {key}{changed}")
    return Finding("signature", "ok", f"all files are signed with {key}")


def _signer(key: Path) -> Any:
    from model_signing import signing

    try:
        return signing.Config().use_elliptic_key_signer(private_key=key)
    except (OSError, ValueError, TypeError) as error:
        raise BadInput(f"{key} is not a private key that can sign: {error}", _MAKE) from error


def _hashing(folder: Path) -> Any:
    """Everything but the signature itself, and the manifest, which storage writes after it."""
    from model_signing import hashing

    return hashing.Config().set_ignored_paths(paths=[folder / SIGNATURE, folder / MANIFEST], ignore_git_paths=False)
