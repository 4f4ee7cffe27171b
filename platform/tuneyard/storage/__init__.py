"""Files and folders at URIs: local disks, S3 and compatible stores, Google Cloud Storage, HDFS.

One interface (`Store`) with two guarantees. File writes are atomic. A folder is complete (its manifest, written last, exists) or absent.
`create` is a create-if-absent on every kind of storage; commit logs and leases are built on it.
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
