"""Files that people make: spreadsheets, scripts, and the default of each library."""

from __future__ import annotations

import io
import json
import pickle
import sqlite3
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.real_exports.case import Case, N, chat, completion, document, lines
from benchmarks.real_exports.workbooks import ods, xlsx

_ROWS = [{"prompt": f"p{i}", "completion": f"c{i}"} for i in range(N)]
_RIGHT = completion("p0", "c0")


def _parquet(table: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


_TABLE = [["prompt", "completion"], *([*row.values()] for row in _ROWS)]
_TWO = {"Notes": [["by", "Anna"]], "Rows": _TABLE}


def _database() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.sqlite"
        database = sqlite3.connect(path)
        database.execute("create table rows (prompt text)")
        database.commit()
        database.close()
        return path.read_bytes()


def _zipped(name: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(name, "x")
    return out.getvalue()


_MESSAGES = "[{'role': 'user', 'content': 'q%d'}%s {'role': 'assistant', 'content': 'a%d'}]"
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)
CASES = [
    Case("Excel's sep= line", "sep.csv", "\ufeffsep=;\r\nprompt;completion\r\np0;c0\r\np1;c1\r\n".encode(), _RIGHT),
    Case("blanks around names of columns", "blanks.csv", b"prompt , completion\np0,c0\np1,c1\n", _RIGHT),
    Case("one object on one line that holds a list", "oneline.json", document({"data": _ROWS}), _RIGHT),
    Case(
        "questions and answers in one object",
        "faq.json",
        document({"data": [{"question": f"q{i}", "answer": f"a{i}"} for i in range(N)]}),
        completion("q0", "a0"),
    ),
    Case("a JSON array named .jsonl", "array.jsonl", document(_ROWS), _RIGHT),
    Case("a JSON array spread over lines, named .jsonl", "spread.jsonl", document(_ROWS, indent=2), _RIGHT),
    Case("pretty-printed objects in .jsonl", "pretty.jsonl", "\n".join(json.dumps(row, indent=2) for row in _ROWS).encode(), _RIGHT),
    Case(
        "pandas' to_json",
        "pandas.json",
        document({name: {str(i): row[name] for i, row in enumerate(_ROWS)} for name in ("prompt", "completion")}),
        _RIGHT,
    ),
    Case(
        "pandas' to_json, split",
        "split.json",
        document({"columns": ["prompt", "completion"], "index": [*range(N)], "data": [[*row.values()] for row in _ROWS]}),
        _RIGHT,
    ),
    Case(
        "pandas' to_json, table",
        "table.json",
        document({"schema": {"fields": [{"name": "prompt", "type": "string"}]}, "data": _ROWS}),
        _RIGHT,
    ),
    Case("a list for each column", "columns.json", document({k: [row[k] for row in _ROWS] for k in _ROWS[0]}, indent=1), _RIGHT),
    Case("a list deep inside", "deep.json", document({"status": "ok", "result": {"page": 1, "rows": _ROWS}}, indent=1), _RIGHT),
    Case(
        "the dataset viewer's rows",
        "viewer.json",
        document({"features": [{"name": "prompt"}], "rows": [{"row_idx": i, "row": row} for i, row in enumerate(_ROWS)]}),
        _RIGHT,
    ),
    Case("splits in one object", "splits.json", document({"train": _ROWS, "test": _ROWS[::-1]}), None, ("train", "test")),
    Case("two lists in one object", "lists.json", document({"cats": _ROWS, "dogs": _ROWS[::-1]}), None, ("cats", "dogs")),
    Case(
        "one pretty-printed chat",
        "chat.json",
        document({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}, indent=2),
        chat("user: q", "assistant: a"),
    ),
    Case(
        "messages as Python's text in CSV",
        "pyrepr.csv",
        ("messages\n" + "".join(f'"{_MESSAGES % (i, ",", i)}"\n' for i in range(N))).encode(),
        chat("user: q0", "assistant: a0"),
    ),
    Case(
        "messages as numpy's text in CSV",
        "numpy.csv",
        ("messages\n" + "".join(f'"{_MESSAGES % (i, chr(10), i)}"\n' for i in range(N))).encode(),
        None,
        ("messages", "numpy"),
    ),
    Case("Python's text of each row", "pyrows.jsonl", "".join(f"{row}\n" for row in _ROWS).encode(), None, ("Python", "json.dumps")),
    Case("lines that end in commas", "commas.jsonl", "".join(json.dumps(row) + ",\n" for row in _ROWS).encode(), None, ("comma",)),
    Case("the same key twice", "twice.jsonl", b'{"prompt":"p","prompt":"q","completion":"c"}\n' * N, None, ("prompt", "twice")),
    Case(
        "whole numbers in a float column",
        "floats.parquet",
        _parquet(pa.table({"prompt": [f"p{i}" for i in range(N)], "completion": [4.0, None, *[float(i) for i in range(N - 2)]]})),
        completion("p0", "4"),
    ),
    Case(
        "a Parquet map",
        "map.parquet",
        _parquet(
            pa.table(
                {"fields": pa.array([[("question", f"q{i}"), ("answer", f"a{i}")] for i in range(N)], pa.map_(pa.string(), pa.string()))}
            )
        ),
        completion("q0", "a0"),
        how={"columns": {"prompt": "fields.question", "completion": "fields.answer"}},
    ),
    Case(
        "a struct of lists",
        "struct.parquet",
        _parquet(pa.table({"messages": [{"role": ["user", "assistant"], "content": [f"q{i}", f"a{i}"]} for i in range(N)]})),
        chat("user: q0", "assistant: a0"),
    ),
    Case(
        "a path that the user gives",
        "nested.jsonl",
        lines(lambda i: {"task": {"ask": f"q{i}", "gold": [{"say": f"a{i}"}]}}),
        completion("q0", "a0"),
        how={"columns": {"prompt": "task.ask", "completion": "task.gold[0].say"}},
    ),
    Case(
        "a name with a dot",
        "dotted.jsonl",
        lines(lambda i: {"task.ask": f"q{i}", "task": {"ask": "wrong"}, "answer": f"a{i}"}),
        completion("q0", "a0"),
        how={"columns": {"prompt": "task.ask"}},
    ),
    Case("an Excel workbook", "book.xlsx", xlsx({"Sheet": _TABLE}), _RIGHT),
    Case("a workbook with two sheets", "two.xlsx", xlsx(_TWO), None, ("Notes", "Rows")),
    Case("a named sheet", "named.xlsx", xlsx(_TWO), _RIGHT, how={"sheet": "Rows"}),
    Case(
        "formulas that were never computed",
        "formulas.xlsx",
        xlsx({"Sheet": [_TABLE[0], *([f"p{i}", f'="c{i}"'] for i in range(N))]}),
        None,
        ("B2", "formula"),
    ),
    Case("merged cells", "merged.xlsx", xlsx({"Sheet": _TABLE}, merged=["A2:A4"]), completion("p3", "c3"), ("A2:A4", "merged")),
    Case(
        "a title above the names of columns",
        "titled.xlsx",
        xlsx({"Sheet": [["Our questions of 2026"], *_TABLE]}),
        None,
        ("row 1", "Our questions"),
    ),
    Case("a damaged old Excel file", "old.xls", _OLE, None, ("workbook",)),
    Case("a Word file", "text.docx", _zipped("word/document.xml"), None, ("Word",)),
    Case("an OpenDocument sheet", "sheet.ods", ods(_TABLE), _RIGHT),
    Case("a zip archive", "rows.zip", _zipped("rows.jsonl"), None, ("unzip",)),
    Case("a pickle", "rows.pkl", pickle.dumps(_ROWS), None, ("pickle",)),
    Case("a SQLite database", "rows.sqlite", _database(), None, ("SQLite",)),
]
