"""Reads the output of one job for the API: without threads, with short timeouts, and never more bytes than asked for."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import obstore
import obstore.store

from tuneyard.api.secrets import redact
from tuneyard.cluster.hub_cluster import ENDPOINTS, REGIONS
from tuneyard.storage import NotFound, join, scheme_of
from tuneyard.storage.object_store import object_store_errors
from tuneyard.storage.uris import split_bucket

REQUEST_S, CONNECT_S, RETRIES_S = 10, 3, 5
_PIECE = 1 << 16
_LIMITS: dict[str, Any] = {
    "retry_config": {"max_retries": 2, "retry_timeout": timedelta(seconds=RETRIES_S)},
    "client_options": {"allow_http": True, "timeout": timedelta(seconds=REQUEST_S), "connect_timeout": timedelta(seconds=CONNECT_S)},
}


@dataclass(frozen=True)
class Found:
    """An existing file; its content is read on demand."""

    size_bytes: int
    _answer: Any
    _errors: AbstractContextManager[None]

    async def read(self, most_bytes: int) -> bytes:
        """The content, or its first `most_bytes`. Raises StorageError."""
        pieces, left = [], most_bytes
        with self._errors:
            async for piece in self._answer.stream(min_chunk_size=_PIECE):
                pieces.append(bytes(piece[:left]))
                left -= len(pieces[-1])
                if left <= 0:
                    break
        return b"".join(pieces)


class LogStorage:
    """A folder in an object store. `server`: name of the storage server, for limits and messages. Every method may raise StorageError."""

    def __init__(self, uri: str, server: str, inner: Any) -> None:
        self.server = server
        self._uri = uri
        self._bucket = split_bucket(uri)[0]
        self._inner = inner

    async def folders(self, folder: str) -> list[str]:
        """Names of the folders directly below `folder`."""
        with self._errors(folder, "list"):
            found = await obstore.list_with_delimiter_async(self._inner, prefix=folder)
        return [str(prefix).rstrip("/").rpartition("/")[2] for prefix in found["common_prefixes"]]

    async def find(self, path: str) -> Found | None:
        """A file, or None if it does not exist."""
        try:
            with self._errors(path, "read"):
                answer = await obstore.get_async(self._inner, path)
        except NotFound:
            return None
        return Found(answer.meta["size"], answer, self._errors(path, "read"))

    async def exists(self, path: str) -> bool:
        try:
            with self._errors(path, "look for"):
                await obstore.head_async(self._inner, path)
        except NotFound:
            return False
        return True

    async def is_there(self, path: str) -> bool:
        """Whether there is a file `path`, or any file in a folder of this name."""
        if path and await self.exists(path):
            return True
        with self._errors(path, "list"):
            async for batch in obstore.list(self._inner, prefix=path or None, chunk_size=1):
                return len(batch) > 0
        return False

    def _errors(self, path: str, doing: str) -> AbstractContextManager[None]:
        return object_store_errors(join(self._uri, path), self._bucket, doing)


def with_keys(uri: str, variables: Mapping[str, str]) -> LogStorage:
    """The S3 storage at `uri` with the keys, region and server in `variables`; this process's environment is ignored.

    Raises BadInput for a URI without a bucket, or with credentials.
    """
    keys = {
        "access_key_id": variables["AWS_ACCESS_KEY_ID"],
        "secret_access_key": variables.get("AWS_SECRET_ACCESS_KEY", ""),
        "token": variables.get("AWS_SESSION_TOKEN") or None,
        "expires_at": None,
    }
    return _s3(uri, variables, credential_provider=lambda: keys)


def with_identity(uri: str, variables: Mapping[str, str]) -> LogStorage:
    """The storage at `uri` with the identity in this process's environment. Raises BadInput as `with_keys` does."""
    if scheme_of(uri) == "gs":
        bucket, prefix = split_bucket(uri)
        return LogStorage(uri, f"gs://{bucket}", obstore.store.GCSStore(bucket, prefix=prefix or None, **_LIMITS))
    return _s3(uri, variables)


def _s3(uri: str, variables: Mapping[str, str], **options: Any) -> LogStorage:
    bucket, prefix = split_bucket(uri)
    region = next((variables[name] for name in REGIONS if variables.get(name)), "us-east-1")
    server = next((variables[name] for name in ENDPOINTS if variables.get(name)), f"https://s3.{region}.amazonaws.com")
    # In obstore, the first of these names overrides every variable of the environment.
    config = {
        "aws_endpoint_url_s3": server,
        "endpoint": server,
        "region": region,
        "skip_signature": False,
        "virtual_hosted_style_request": False,
    }
    inner = obstore.store.S3Store(bucket, prefix=prefix or None, config=config, **_LIMITS, **options)  # type: ignore[arg-type]
    return LogStorage(uri, redact(server), inner)
