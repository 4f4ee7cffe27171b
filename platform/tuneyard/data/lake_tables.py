"""Delta and Iceberg tables: the Parquet files of the current snapshot, listed by the tables' own libraries.

A table's folder also holds files of earlier versions and deleted rows. Tables whose rows only the metadata define (rows deleted inside a
file, columns under other names) are refused, so that no deleted row comes back.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from tuneyard.api import BadInput
from tuneyard.data.access import first_line
from tuneyard.data.file_types import FoundFile, TablePart
from tuneyard.extras import need

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

DELTA_LOG = "_delta_log"
ICEBERG_METADATA = "metadata"
_HINT = f"{ICEBERG_METADATA}/version-hint.text"
_METADATA_FILE = re.compile(rf"(?:^|/){ICEBERG_METADATA}/(?:v(\d+)|(\d+)-[^/]+)(?:\.gz)?\.metadata\.json(?:\.gz)?$")
_HARMLESS_FEATURES = {"timestampNtz", "vacuumProtocolCheck", "v2Checkpoint", "typeWidening", "typeWidening-preview", "domainMetadata"}
_EXPORT = "write the table's rows anew, or to a folder of Parquet files"
_PLAIN = (str, int, float, bool, type(None))


@dataclass(frozen=True)
class Folder:
    """A folder that holds a table. `names`: the files below it that lead to the metadata.

    `read` and `find` take a name relative to the folder, an absolute path or a URI. Both raise FileNotFoundError.
    """

    uri: str
    names: tuple[str, ...]
    read: Callable[[str], bytes]
    find: Callable[[str], FoundFile]


def is_metadata_file(path: str) -> bool:
    """Whether a path is that of an Iceberg table's metadata."""
    return bool(_METADATA_FILE.search(path))


def table_in(names: Iterable[str]) -> bool:
    """Whether a folder with these files is a table."""
    return any(name.startswith(f"{DELTA_LOG}/") or name == _HINT or _METADATA_FILE.match(name) for name in names)


def open_table(uri: str, folder: Folder, metadata_file: str | None = None) -> tuple[list[tuple[FoundFile, TablePart]], str]:
    """Files of the current snapshot, each with its metadata, and a note on the version.

    `metadata_file`: the current metadata file of an Iceberg table, where it is not the newest one.
    Raises BadInput: the library is missing, the metadata are damaged, files are missing, or the Parquet files alone do not give the rows.
    """
    if metadata_file is None and any(name.startswith(f"{DELTA_LOG}/") for name in folder.names):
        kind, listed = "Delta", _delta_files
    else:
        kind, listed = "Iceberg", lambda uri, folder: _iceberg_files(uri, folder, metadata_file)
    a_table = f"{'an' if kind == 'Iceberg' else 'a'} {kind} table"
    need("tables", f"{uri}: reading {a_table}")
    try:
        parts = listed(uri, folder)
    except ImportError as error:
        raise BadInput(f"{uri}: {a_table}, and {error.name} is not installed", "pip install 'tuneyard[tables]'") from error
    if not parts:
        raise BadInput(f"{uri}: the {kind} table is empty", "check the path, or write rows into it")
    found = []
    for path, part in parts:
        try:
            found.append((folder.find(path), part))
        except FileNotFoundError as error:
            raise BadInput(f"{uri}: {path} of {part.snapshot} is gone", "was the table vacuumed or copied in part? Repair it") from error
    return found, f"{a_table}, read as {len(found)} Parquet files of {parts[0][1].snapshot}"


# --- Delta ------------------------------------------------------------------------------------------------------------------------


def _delta_files(uri: str, folder: Folder) -> list[tuple[str, TablePart]]:
    import pyarrow as pa
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        table = DeltaTable(folder.uri, storage_options=_delta_options(folder.uri))
        _check_delta(uri, table)
        snapshot = f"version {table.version()}"
        actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        columns = tuple(field.name for field in table.schema().fields)
    except DeltaError as error:
        raise BadInput(f"{uri}: the Delta table cannot be read: {first_line(error)}", _EXPORT) from error
    found = []
    for action in actions:
        constants = tuple((name.removeprefix("partition."), value) for name, value in action.items() if name.startswith("partition."))
        found.append((unquote(action["path"]), TablePart(snapshot, columns, constants)))
    return found


def _check_delta(uri: str, table: Any) -> None:
    """Raises BadInput where the Parquet files alone do not give the rows."""
    features = set(table.protocol().reader_features or ())
    mapping = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    if mapping != "none":
        raise BadInput(f"{uri}: the Delta table maps columns (delta.columnMapping.mode is {mapping}): files hold other names", _EXPORT)
    if "deletionVectors" in features and next(iter(table.deletion_vectors()), None):
        raise BadInput(
            f"{uri}: the Delta table has deletion vectors: its files still hold rows that were deleted",
            "rewrite these files: REORG TABLE … APPLY (PURGE)",
        )
    unknown = features - _HARMLESS_FEATURES - {"deletionVectors", "columnMapping"}
    if unknown:
        raise BadInput(f"{uri}: the Delta table needs reader features that are not known here: {', '.join(sorted(unknown))}", _EXPORT)


def _delta_options(uri: str) -> dict[str, str] | None:
    import os

    from tuneyard.storage.credentials import s3_settings

    if not uri.startswith("s3"):
        return None
    return {"allow_http": "true", **s3_settings(os.environ)}


# --- Iceberg ----------------------------------------------------------------------------------------------------------------------


def _iceberg_files(uri: str, folder: Folder, metadata_file: str | None) -> list[tuple[str, TablePart]]:

    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.exceptions import ValidationError
    from pyiceberg.serializers import FromInputFile
    from pyiceberg.table import StaticTable

    name = f"{ICEBERG_METADATA}/{metadata_file}" if metadata_file else _current_metadata(uri, folder)
    try:
        metadata = FromInputFile.table_metadata(_files_of(folder, ".").new_input(name))
    except (ValueError, OSError, ValidationError) as error:
        raise BadInput(f"{uri}: {name} cannot be read: {first_line(error)}", "point data.source at another metadata file") from error
    snapshot = metadata.snapshot_by_id(metadata.current_snapshot_id) if metadata.current_snapshot_id is not None else None
    if snapshot is None:
        return []
    _check_iceberg(uri, metadata)
    table = StaticTable(("table",), metadata, name, _files_of(folder, metadata.location), NoopCatalog("none"))
    columns = tuple(field.name for field in table.schema().fields)
    found = []
    for task in table.scan().plan_files():
        if task.delete_files:
            raise BadInput(
                f"{uri}: the Iceberg table has delete files: its data files still hold rows that were deleted",
                "rewrite these files: CALL catalog.system.rewrite_data_files(table => …, options => map('delete-file-threshold', '1'))",
            )
        if task.file.file_format.value.upper() != "PARQUET":
            raise BadInput(f"{uri}: the Iceberg table holds {task.file.file_format.value} files, not Parquet", _EXPORT)
        constants = _identity_partition(table, task.file)
        path = _relative(task.file.file_path, metadata.location)
        found.append((path, TablePart(f"snapshot {snapshot.snapshot_id}", columns, constants)))
    return found


def _current_metadata(uri: str, folder: Folder) -> str:
    """Name of the current metadata file: from version-hint.text, else the file with the highest number."""
    if _HINT in folder.names:
        hint = folder.read(_HINT).decode(errors="replace").strip()
        name = hint if hint.endswith(".metadata.json") else f"v{hint}.metadata.json" if hint.isdigit() else f"{hint}.metadata.json"
        if f"{ICEBERG_METADATA}/{name}" in folder.names:
            return f"{ICEBERG_METADATA}/{name}"
    numbered = [(int(match[1] or match[2]), name) for name in folder.names if (match := _METADATA_FILE.match(name))]
    if not numbered:
        raise BadInput(f"{uri}: the Iceberg table has no metadata file", "was it copied in part?")
    newest, name = max(numbered)
    if sum(number == newest for number, _ in numbered) > 1:
        raise BadInput(
            f"{uri}: the Iceberg table has several metadata files with the number {newest}, and only its catalog knows the current one",
            f"point data.source at that file, such as {folder.uri}/{name}",
        )
    return name


def _check_iceberg(uri: str, metadata: Any) -> None:
    """Raises BadInput where a column was renamed or a name was reused: files are read by names."""
    from pyiceberg.schema import index_name_by_id

    current = dict(index_name_by_id(metadata.schema_by_id(metadata.current_schema_id)))
    ids = {name: number for number, name in current.items()}
    for schema in metadata.schemas:
        for number, name in index_name_by_id(schema).items():
            if current.get(number, name) != name or ids.get(name, number) != number:
                raise BadInput(f"{uri}: the Iceberg table's column {current.get(number, name)} was renamed or made anew", _EXPORT)


def _identity_partition(table: Any, file: Any) -> tuple[tuple[str, Any], ...]:
    """Columns with one value for all rows of a file. Tables imported from Hive have them in the metadata alone."""
    names = [
        (table.schema().find_column_name(field.source_id), value)
        for field, value in zip(table.specs()[file.spec_id].fields, file.partition, strict=False)
        if str(field.transform) == "identity"
    ]
    return tuple((name, value) for name, value in names if name is not None and isinstance(value, _PLAIN))


def _relative(path: str, location: str) -> str:
    """A path relative to the table's folder, so that a table can be moved. A path outside stays absolute, without file://."""
    start = location.rstrip("/") + "/"
    if path.startswith(start):
        return posixpath.normpath(path[len(start) :])
    return path.removeprefix("file://") if path.startswith("file:/") else path


def _files_of(folder: Folder, location: str) -> FileIO:
    """pyiceberg's file access through `folder`: same credentials, retries and errors, and paths of moved tables are mapped."""
    import io

    from pyiceberg.io import FileIO, InputFile, OutputFile

    class Input(InputFile):
        def _content(self) -> bytes:
            return folder.read(_relative(self.location, location))

        def __len__(self) -> int:
            return len(self._content())

        def exists(self) -> bool:
            return True

        def open(self, seekable: bool = True) -> Any:  # noqa: ARG002
            return io.BytesIO(self._content())

    class Reading(FileIO):
        def new_input(self, location: str) -> InputFile:
            return Input(location)

        def new_output(self, location: str) -> OutputFile:
            raise NotImplementedError(location)

        def delete(self, location: str | InputFile | OutputFile) -> None:
            raise NotImplementedError(location)

    return Reading()
