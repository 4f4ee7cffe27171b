"""Uploads of parcels to the job's storage. A parcel is stored whole, with the content of its hash, or not at all."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tuneyard.api import StorageError
from tuneyard.cluster.shipping import Parcel, Shipment
from tuneyard.storage import EXECUTABLE, Store, open_store

OnProgress = Callable[[str, int, int], None]
"""Gets the name of the parcel, bytes sent, and bytes in all. It may be called from any thread."""


@dataclass(frozen=True)
class Sent:
    """Parcels sent now (`new`), and parcels that were stored already (`there`)."""

    new: tuple[Parcel, ...]
    there: tuple[Parcel, ...]


def send(shipment: Shipment, on_progress: OnProgress = lambda _name, _done, _of: None) -> Sent:
    """Upload every parcel of a shipment that its root lacks. Raises StorageError where the storage refuses, or a file changes meanwhile."""
    store = open_store(shipment.root)
    missing = [parcel for parcel in shipment.parcels if not _is_there(store, parcel)]
    of_bytes = sum(parcel.size_bytes for parcel in missing)
    done_bytes = 0
    for parcel in missing:
        before = done_bytes

        def tell(done: int, _of: int, parcel: Parcel = parcel, before: int = before) -> None:
            on_progress(parcel.text, before + done, of_bytes)

        (_send_file if parcel.single else _send_folder)(store, parcel, tell)
        done_bytes += parcel.size_bytes
        on_progress(parcel.text, done_bytes, of_bytes)
    return Sent(tuple(missing), tuple(parcel for parcel in shipment.parcels if parcel not in missing))


def _is_there(store: Store, parcel: Parcel) -> bool:
    return store.exists(parcel.place) if parcel.single else store.is_complete(parcel.place)


def _send_file(store: Store, parcel: Parcel, tell: Callable[[int, int], None]) -> None:
    ((name, path),) = parcel.files.items()
    digest, done = hashlib.sha256(), 0

    def chunks() -> Iterator[bytes]:
        nonlocal done
        with path.open("rb") as stream:
            while block := stream.read(1 << 22):
                digest.update(block)
                done += len(block)
                tell(done, parcel.size_bytes)
                yield block

    store.put_stream(parcel.place, chunks(), parcel.size_bytes)
    if digest.hexdigest() != parcel.hashes[name]:
        store.delete(parcel.place)
        raise _changed(path)


def _send_folder(store: Store, parcel: Parcel, tell: Callable[[int, int], None]) -> None:
    with tempfile.TemporaryDirectory(prefix="tuneyard-ship-") as staged:
        for name, path in parcel.files.items():
            link = Path(staged, name)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path.resolve())
        manifest = store.upload_folder(Path(staged), parcel.place, tell, extra={EXECUTABLE: parcel.executable})
    different = [file.path for file in manifest.files if parcel.hashes.get(file.path) != file.sha256]
    if different or len(manifest.files) != len(parcel.files):
        store.delete_prefix(parcel.place)
        raise _changed(parcel.files.get(different[0], Path(parcel.text)) if different else Path(parcel.text))


def _changed(path: Path) -> StorageError:
    return StorageError(f"{path} changed while it was being shipped", "let the program that writes it end first, then submit again")
