"""S3, compatible stores, and Google Cloud Storage, through obstore (Rust's object_store)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tuneyard.api import StorageError
from tuneyard.api.secrets import redact
from tuneyard.storage.credentials import NO_CREDENTIALS, s3_settings
from tuneyard.storage.errors import AlreadyExists, NotFound, shortened
from tuneyard.storage.files import CHUNK_BYTES, exactly
from tuneyard.storage.forks import refuse_in_fork
from tuneyard.storage.retry import RETRY_TOTAL_S
from tuneyard.storage.store import FileInfo, Store
from tuneyard.storage.uris import clean, scheme_of, split_bucket

if TYPE_CHECKING:
    import obstore.store

PART_BYTES = 16 << 20
"""Larger files are uploaded in parts of at least this size."""
MOST_PARTS = 9_000
"""S3 allows 10,000 parts per object."""
PARTS_AT_ONCE = 4
REQUEST_TIMEOUT_S = 120
CONNECT_TIMEOUT_S = 10


def open_object_store(uri: str, environment: Mapping[str, str] | None = None) -> ObjectStore:
    """The store at s3://BUCKET/PREFIX or gs://BUCKET/PREFIX; endpoint, keys and region come from the usual variables.

    It makes no request: a wrong bucket or key fails at the first use.
    """
    import obstore.store

    bucket, prefix = split_bucket(uri)
    environment = os.environ if environment is None else environment
    limits: dict[str, Any] = {
        "retry_config": {
            "max_retries": 1000,
            "retry_timeout": timedelta(seconds=RETRY_TOTAL_S),
            "backoff": {"init_backoff": timedelta(milliseconds=200), "max_backoff": timedelta(seconds=10), "base": 2},
        },
        "client_options": {
            "allow_http": True,
            "timeout": timedelta(seconds=REQUEST_TIMEOUT_S),
            "connect_timeout": timedelta(seconds=CONNECT_TIMEOUT_S),
        },
    }
    inner: obstore.store.ObjectStore
    if scheme_of(uri) == "gs":
        inner = obstore.store.GCSStore(bucket, prefix=prefix or None, **limits)
    else:
        inner = obstore.store.S3Store(bucket, prefix=prefix or None, config=s3_settings(environment), **limits)  # type: ignore[arg-type]
    return ObjectStore(uri, bucket, inner)


class ObjectStore(Store):
    """A store in a bucket. Its writes are atomic; a large file is uploaded in parts, and visible once the upload is complete."""

    def __init__(self, uri: str, bucket: str, inner: obstore.store.ObjectStore) -> None:
        super().__init__(uri)
        self._bucket = bucket
        self._inner = inner

    def _errors(self, path: str, doing: str) -> AbstractContextManager[None]:
        refuse_in_fork(self.url(path), doing)
        return object_store_errors(self.url(path), self._bucket, doing)

    def put(self, path: str, data: bytes) -> None:
        import obstore

        with self._errors(path, "write"):
            obstore.put(self._inner, clean(path), data, use_multipart=False)

    def create(self, path: str, data: bytes) -> None:
        import obstore

        with self._errors(path, "write"):
            obstore.put(self._inner, clean(path), data, mode="create")

    def put_stream(self, path: str, chunks: Iterable[bytes], size_bytes: int) -> None:
        import obstore

        if size_bytes <= PART_BYTES:
            self.put(path, b"".join(exactly(chunks, size_bytes, self.url(path))))
            return
        part_bytes = max(PART_BYTES, -(-size_bytes // MOST_PARTS))
        with self._errors(path, "write"):
            obstore.put(
                self._inner,
                clean(path),
                exactly(chunks, size_bytes, self.url(path)),
                chunk_size=part_bytes,
                max_concurrency=PARTS_AT_ONCE,
            )

    def get(self, path: str) -> bytes:
        import obstore

        with self._errors(path, "read"):
            return bytes(obstore.get(self._inner, clean(path)).bytes())

    def get_stream(self, path: str) -> Iterator[bytes]:
        import obstore

        with self._errors(path, "read"):
            for chunk in obstore.get(self._inner, clean(path)).stream(min_chunk_size=CHUNK_BYTES):
                yield bytes(chunk)

    def exists(self, path: str) -> bool:
        import obstore

        try:
            with self._errors(path, "look for"):
                obstore.head(self._inner, clean(path))
        except NotFound:
            return False
        return True

    def list(self, prefix: str = "") -> Sequence[FileInfo]:
        import obstore

        found = []
        with self._errors(prefix, "list"):
            for batch in obstore.list(self._inner, prefix=clean(prefix) or None):
                for meta in batch:
                    modified = meta["last_modified"]
                    found.append(FileInfo(meta["path"], meta["size"], meta["e_tag"] or str(modified), modified.timestamp()))
        return sorted(found, key=lambda file: file.path)

    def has_files(self, prefix: str = "") -> bool:
        import obstore

        with self._errors(prefix, "list"):  # one page: a folder may hold millions
            return any(len(batch) for batch in obstore.list(self._inner, prefix=clean(prefix) or None, chunk_size=1))

    def delete(self, path: str) -> None:
        import obstore

        try:
            with self._errors(path, "remove"):
                obstore.delete(self._inner, clean(path))
        except NotFound:
            return


@contextmanager
def object_store_errors(url: str, bucket: str, doing: str) -> Iterator[None]:
    """Raises StorageError in place of obstore's errors. `doing`: the failed operation on `url`, such as "read" or "list"."""
    import obstore.exceptions as refused

    url = redact(url)
    try:
        yield
    except FileNotFoundError as error:
        if "NoSuchBucket" in str(error) or doing == "write":
            raise StorageError(f"cannot {doing} {url}: there is no bucket {bucket!r}", "create it, or check the name") from error
        raise NotFound(f"cannot {doing} {url}: it does not exist", "check the path") from error
    except refused.AlreadyExistsError as error:
        raise AlreadyExists(f"{url} exists already", "another process was first") from error
    except (refused.PermissionDeniedError, refused.UnauthenticatedError) as error:
        raise StorageError(f"cannot {doing} {url}: access denied", f"check the keys and their rights. {NO_CREDENTIALS}") from error
    except (refused.BaseError, ValueError, OSError) as error:
        raise StorageError(f"cannot {doing} {url}: {shortened(error)}", _next_step(str(error))) from error


def _next_step(text: str) -> str:
    if "169.254.169.254" in text or "metadata.google.internal" in text:
        return NO_CREDENTIALS
    if "error sending request" in text or "onnect" in text or "dns error" in text:
        return "check the network, and AWS_ENDPOINT_URL where the server is not Amazon's; then try again"
    return "check the bucket, the keys and the region; then try again"
