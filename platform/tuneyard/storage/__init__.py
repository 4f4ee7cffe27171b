"""Files and folders at URIs: local disks, S3 and what speaks it, Google Cloud Storage, HDFS.

One interface (`Store`), two promises: a file is seen whole or not at all, and a folder is complete (its manifest, written
last, is there) or absent. `create` writes only where nothing is, on every kind of storage; leases are built on it.
"""

from tuneyard.storage.cache import fetch_folder
from tuneyard.storage.commits import Commit, CommitLog, Fence, Fenced, LogState
from tuneyard.storage.errors import AlreadyExists, NotFound
from tuneyard.storage.lease import Holder, Lease, acquire
from tuneyard.storage.manifest import EXECUTABLE, MANIFEST, Manifest, ManifestFile
from tuneyard.storage.opening import open_store
from tuneyard.storage.store import FileInfo, Store
from tuneyard.storage.uris import absolute, clean, is_local, join, local_path, scheme_of

__all__ = [
    "EXECUTABLE",
    "MANIFEST",
    "AlreadyExists",
    "Commit",
    "CommitLog",
    "Fence",
    "Fenced",
    "FileInfo",
    "Holder",
    "Lease",
    "LogState",
    "Manifest",
    "ManifestFile",
    "NotFound",
    "Store",
    "absolute",
    "acquire",
    "clean",
    "fetch_folder",
    "is_local",
    "join",
    "local_path",
    "open_store",
    "scheme_of",
]
