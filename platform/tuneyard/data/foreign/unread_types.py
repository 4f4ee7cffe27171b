"""Types of files that hold rows for people or for other programs and are not read, with the way to rows. One entry is one type."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class UnreadType:
    """`endings`: of names. `magic`: the first bytes; empty where endings alone tell the type."""

    what: str
    advice: str
    endings: tuple[str, ...]
    magic: bytes = b""


_PANDAS = "python3 -c \"import pandas; pandas.{}.to_json('rows.jsonl', orient='records', lines=True)\""
UNREAD: list[UnreadType] = [
    UnreadType("a Word file", "save its text as .txt, or its table as .csv", (".docx", ".doc", ".odt", ".rtf")),
    UnreadType("a PDF file", "extract its text, such as by pdftotext, and write one document per line as JSON", (".pdf",), b"%PDF"),
    UnreadType("a slide show", "save its text as .txt", (".pptx", ".ppt", ".odp")),
    UnreadType("a web page", "extract its text, and write one document per line as JSON", (".html", ".htm"), b"<!DOCTYPE"),
    UnreadType("an XML file", "write one row per line as JSON: " + _PANDAS.format("read_xml('IN')"), (".xml",), b"<?xml"),
    UnreadType("a YAML file", "write one row per line as JSON: yq -o=json -I=0 '.[]' IN > rows.jsonl", (".yaml", ".yml")),
    UnreadType("a Numbers file", "export it as .xlsx or .csv", (".numbers",)),
    UnreadType(
        "a pickle",
        "it can run code when it is read, so read it where you trust it: " + _PANDAS.format("read_pickle('IN')"),
        (".pkl", ".pickle"),
    ),
    UnreadType("a file of numpy", "it holds numbers; write texts as JSON lines", (".npy", ".npz"), b"\x93NUMPY"),
    UnreadType("a file of torch", "it holds tensors; give the texts from which they were made", (".pt", ".pth", ".safetensors")),
    UnreadType(
        "a SQLite database",
        "write a query as CSV: sqlite3 -header -csv IN 'select prompt, completion from rows' > rows.csv",
        (".sqlite", ".sqlite3", ".db"),
        b"SQLite format 3\0",
    ),
    UnreadType(
        "an Avro file", "write it as Parquet, such as by DuckDB: COPY (FROM read_avro('IN')) TO 'rows.parquet'", (".avro",), b"Obj\x01"
    ),
    UnreadType(
        "an ORC file", "write it as Parquet: pyarrow.parquet.write_table(pyarrow.orc.read_table('IN'), 'rows.parquet')", (".orc",), b"ORC"
    ),
    UnreadType("an HDF5 file", "write one row per line as JSON: " + _PANDAS.format("read_hdf('IN')"), (".h5", ".hdf5"), b"\x89HDF"),
    UnreadType(
        "a file of Stata, SAS or SPSS",
        "write it as CSV, such as by pandas.read_stata, read_sas or read_spss",
        (".dta", ".sas7bdat", ".sav"),
    ),
    UnreadType("an R data file", "write it as CSV in R: write.csv(rows, 'rows.csv', row.names = FALSE)", (".rds", ".rdata")),
    UnreadType("a TFRecord file", "write one row per line as JSON", (".tfrecord",)),
    UnreadType("an mbox of mails", "write one mail per line as JSON", (".mbox", ".eml")),
    UnreadType("a zip archive", "unpack it, and point data.source at the folder: unzip IN -d rows", (".zip",), b"PK\x03\x04"),
    UnreadType(
        "a tar archive", "unpack it, and point data.source at the folder: tar -xf IN", (".tar", ".tgz", ".tar.gz", ".tar.zst", ".tar.bz2")
    ),
    UnreadType(
        "a 7z, rar or xz archive", "unpack it, and point data.source at the file or the folder", (".7z", ".rar", ".xz"), b"\xfd7zXZ"
    ),
]


def unread_by_name(path: str) -> UnreadType | None:
    name = path.lower()
    return next((each for each in UNREAD if name.endswith(each.endings)), None)


def unread_by_content(head: bytes) -> UnreadType | None:
    return next((each for each in UNREAD if each.magic and head.startswith(each.magic)), None)
