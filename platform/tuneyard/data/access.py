"""Remote file systems: retries for temporary errors, and clear messages for all others."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

from tuneyard.api import BadInput, StorageError
from tuneyard.api.secrets import redact
from tuneyard.storage.credentials import NO_CREDENTIALS, s3_settings
from tuneyard.storage.forks import use_clients
from tuneyard.storage.retry import RETRY_TOTAL_S, with_retries

Result = TypeVar("Result")

SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "hdfs": "hdfs", "webhdfs": "webhdfs"}
READ_RETRY_S = 180.0
"""How long reads retry while a store that has answered before is unreachable."""
_TIMEOUT = timedelta(seconds=60)
_METADATA_SERVERS = ("169.254.169.254", "metadata.google")
_BUSY = re.compile(r"non-2xx status code: (?:408|429|5\d\d)\b")
_LOST = re.compile(r"HTTP error: |error decoding response body|connection (?:closed|reset)|timed? ?out", re.IGNORECASE)


@dataclass(frozen=True)
class Bucket:
    """A bucket of S3 or Google Cloud Storage. It holds no connection, so it can be pickled."""

    scheme: str
    name: str

    @property
    def store(self) -> Any:
        """obstore's store for this bucket, with the credentials that the environment holds now. Not for a fork (`storage.forks`)."""
        use_clients()
        keys = tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith(("AWS_", "GOOGLE_", "HOME"))))
        return _object_store(self.scheme, self.name, keys)


@cache
def _object_store(scheme: str, bucket: str, _keys: tuple[tuple[str, str], ...]) -> Any:
    import obstore.store

    limits: dict[str, Any] = {"client_options": {"allow_http": True}, "retry_config": {"max_retries": 5, "retry_timeout": _TIMEOUT}}
    if scheme == "gs":
        return obstore.store.GCSStore(bucket, **limits)
    settings: Any = s3_settings(os.environ)
    return obstore.store.S3Store(bucket, config=settings, **limits)


@cache
def filesystem(scheme: str, host: str) -> Any:
    """fsspec's file system for HDFS. Not for a fork (`storage.forks`)."""
    import fsspec

    use_clients()

    name, _, port = host.partition(":")
    return fsspec.filesystem(scheme, host=name or "default", **({"port": int(port)} if port else {}))


def patiently(action: Callable[[], Result], *, total_s: float = RETRY_TOTAL_S, away: bool = False) -> Result:
    """Run `action` with retries for up to `total_s`, and return its result.

    Retried: throttling and faults of the store (HTTP 408, 429, 5xx); with `away`, an unreachable store too. Without `away`, a wrong
    address fails within seconds.
    """
    return with_retries(action, lambda error: _passes(error, away=away), total_s=total_s)


def _passes(error: Exception, *, away: bool) -> bool:
    from obstore.exceptions import BaseError

    text = str(error)
    if not isinstance(error, BaseError) or any(server in text for server in _METADATA_SERVERS):
        return False
    return bool(_BUSY.search(text) or (away and _LOST.search(text)))


@contextmanager
def reading(uri: str) -> Iterator[None]:
    """Turn errors of file systems into messages for people. Raises BadInput (missing, no access) or StorageError (network)."""
    from obstore.exceptions import BaseError, NotFoundError, PermissionDeniedError, UnauthenticatedError

    try:
        yield
    except (FileNotFoundError, NotFoundError) as error:
        raise BadInput(f"{redact(uri)}: nothing is there", "check the path; `tuneyard data inspect` shows the content of a path") from error
    except (PermissionError, PermissionDeniedError, UnauthenticatedError) as error:
        raise _refused(redact(uri), first_line(error)) from error
    except (BaseError, OSError, ImportError) as error:
        raise _explained(redact(uri), error) from error


def first_line(error: BaseException) -> str:
    """The first line of an error's text, without secrets."""
    return redact((str(error).splitlines() or [type(error).__name__])[0][:300])


def _refused(uri: str, why: str) -> BadInput:
    next_step = f"check the keys and their rights. {NO_CREDENTIALS}" if "://" in uri else "make the file readable for this user"
    return BadInput(f"{uri}: access was refused: {why}", next_step)


def _explained(uri: str, error: BaseException) -> BadInput | StorageError:
    text = first_line(error)
    if any(server in text for server in _METADATA_SERVERS):  # clients of object stores ask there when they have no key
        return BadInput(f"{uri}: no credentials were found", NO_CREDENTIALS)
    if "403 Forbidden" in text or "401 Unauthorized" in text:
        return _refused(uri, text.rpartition(" - ")[2])
    if isinstance(error, ImportError) or "libhdfs" in text or "JAVA_HOME" in text:
        return BadInput(f"{uri}: its client cannot be used here: {text}", "install it (HDFS: libhdfs and Java), or use webhdfs://")
    return StorageError(f"{uri}: could not be read: {text}", "check the network and the address, then try again")
