"""`python -m tests.servers.hdfs_fork URI`: hashes of a file's bytes as a process reads them, and then a fork of it with many threads."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from multiprocessing import Pipe, get_context

from tuneyard.data.file_types import FoundFile
from tuneyard.data.opening import open_found
from tuneyard.data.sources import locate

_PIECE_BYTES = 4096


def whole(found: FoundFile) -> str:
    with open_found(found) as file:
        return sha256(file.read()).hexdigest()


def in_pieces(found: FoundFile) -> str:
    def piece(start: int) -> bytes:
        with open_found(found) as file:
            file.seek(start)
            return file.read(_PIECE_BYTES)

    with ThreadPoolExecutor(8) as pool:
        return sha256(b"".join(pool.map(piece, range(0, found.size_bytes, _PIECE_BYTES)))).hexdigest()


def main() -> None:
    found = locate(sys.argv[1]).files[0].found
    told = {"parent": whole(found)}
    ours, theirs = Pipe()
    fork = get_context("fork").Process(target=lambda: theirs.send(in_pieces(found)))  # it inherits the file: nothing is pickled
    fork.start()
    theirs.close()
    told["fork"] = ours.recv()
    fork.join()
    print(json.dumps(told))


if __name__ == "__main__":
    main()
