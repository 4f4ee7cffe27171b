"""Opens the store of a URI."""

from __future__ import annotations

from tuneyard.api import BadInput
from tuneyard.storage.store import Store
from tuneyard.storage.uris import HDFS_SCHEMES, OBJECT_SCHEMES, SCHEMES, local_path, scheme_of


def open_store(uri: str) -> Store:
    """The store at a local path, file://, s3://, gs://, hdfs://, webhdfs:// or swebhdfs:// (WebHDFS over TLS).

    The folder need not exist yet. Raises BadInput for other schemes and for invalid URIs.
    """
    scheme = scheme_of(uri)
    if scheme == "file":
        from tuneyard.storage.local_store import LocalStore

        return LocalStore(local_path(uri).absolute())
    if scheme in OBJECT_SCHEMES:
        from tuneyard.storage.object_store import open_object_store

        return open_object_store(uri)
    if scheme in HDFS_SCHEMES:
        from tuneyard.storage.hdfs_store import open_hdfs_store

        return open_hdfs_store(uri)
    raise BadInput(f"{scheme}:// is not a known kind of storage", f"use one of: {', '.join(f'{known}://' for known in SCHEMES)}")
