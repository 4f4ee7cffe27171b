"""Remote file systems, and what their errors mean for people."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import Any

from tuneyard.api import BadInput, StorageError
from tuneyard.api.secrets import redact
from tuneyard.storage.credentials import NO_CREDENTIALS, s3_settings

SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "hdfs": "hdfs", "webhdfs": "webhdfs"}
_TIMEOUT = timedelta(seconds=60)
_METADATA_SERVERS = ("169.254.169.254", "metadata.google")


@cache
def filesystem(scheme: str, host: str) -> Any:
    """The fsspec face of a remote store: obstore's for s3 and gs, fsspec's own for HDFS."""
    if scheme in ("s3", "gs"):
        from obstore.fsspec import FsspecStore

        limits: dict[str, Any] = {"client_options": {"allow_http": True}, "retry_config": {"max_retries": 5, "retry_timeout": _TIMEOUT}}
        open_store: Any = FsspecStore  # its overloads want the scheme as a literal
        settings = s3_settings(os.environ) if scheme == "s3" else None
        return open_store(scheme, config=settings, skip_instance_cache=True, **limits)
    import fsspec

    name, _, port = host.partition(":")
    return fsspec.filesystem(scheme, host=name or "default", **({"port": int(port)} if port else {}))


@contextmanager
def reading(uri: str) -> Iterator[None]:
    """Turn what file systems raise into errors for people. Raises BadInput (missing, no access) or StorageError (network)."""
    from obstore.exceptions import BaseError, NotFoundError, PermissionDeniedError, UnauthenticatedError

    try:
        yield
    except (FileNotFoundError, NotFoundError) as error:
        raise BadInput(f"{redact(uri)}: nothing is there", "check the path; `tuneyard data inspect` shows what a path holds") from error
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
    if any(server in text for server in _METADATA_SERVERS):  # object stores ask there when they were given no key at all
        return BadInput(f"{uri}: no credentials were found", NO_CREDENTIALS)
    if "403 Forbidden" in text or "401 Unauthorized" in text:
        return _refused(uri, text.rpartition(" - ")[2])
    if isinstance(error, ImportError) or "libhdfs" in text or "JAVA_HOME" in text:
        return BadInput(f"{uri}: its client cannot be used here: {text}", "install it (HDFS: libhdfs and Java), or use webhdfs://")
    return StorageError(f"{uri}: could not be read: {text}", "check the network and the address, then try again")
