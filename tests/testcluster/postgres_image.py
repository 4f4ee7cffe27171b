"""A container image with this machine's PostgreSQL server, which starts as the official image does: for the hub's chart on a test cluster.

Unlike `images.host_image` it mounts nothing, since the chart's StatefulSet has no volumes of this machine. It holds the programs, the
libraries that they are linked with, and an entrypoint that makes the database on an empty volume.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.servers.installed import postgres_folder
from tests.testcluster.images import add_entry, layout

POSTGRES_IMAGE = "tuneyard.test/postgres:1"
_USER_ID = 999
_PROGRAMS = ("postgres", "initdb", "pg_ctl", "pg_isready", "createdb", "psql")
_EXTENSIONS = ("plpgsql.so", "dict_snowball.so")
_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_USERS = {
    "etc/passwd": f"root:x:0:0::/root:/bin/sh\npostgres:x:{_USER_ID}:{_USER_ID}::/tmp:/bin/sh\n",
    "etc/group": f"root:x:0:\npostgres:x:{_USER_ID}:\n",
}
_ENTRYPOINT = """#!/bin/sh
# As docker-entrypoint.sh of the official image: an empty volume gets a database with the user, the password and the name of POSTGRES_*.
set -e
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  echo "$POSTGRES_PASSWORD" >/tmp/password
  initdb -D "$PGDATA" -U "$POSTGRES_USER" --pwfile=/tmp/password --locale=C --encoding=UTF8 --auth-local=trust --auth-host=scram-sha-256
  pg_ctl -D "$PGDATA" -w -o "-c listen_addresses=''" start
  createdb -U "$POSTGRES_USER" "$POSTGRES_DB"
  pg_ctl -D "$PGDATA" -w -m fast stop
  echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
fi
exec postgres -D "$PGDATA" -c listen_addresses='*'
"""


def postgres_image(folder: Path) -> Path:
    """The image, in a tar file that `ctr images import` reads. Skips the test where this machine has no PostgreSQL."""
    programs = postgres_folder()
    shared = Path("/usr/share/postgresql") / programs.parent.name
    files = [*(programs / name for name in _PROGRAMS), *(programs.parent / "lib" / name for name in _EXTENSIONS), Path("/bin/sh")]
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for name in ("usr", "etc", "var", "var/run", "var/run/postgresql", "var/lib", "var/lib/postgresql", "proc", "sys", "dev"):
            add_entry(tar, name, tarfile.DIRTYPE, mode=0o755)
        add_entry(tar, "tmp", tarfile.DIRTYPE, mode=0o1777)
        for name in _LINKS:
            if Path("/", name).is_symlink():
                add_entry(tar, name, tarfile.SYMTYPE, target=os.readlink(f"/{name}"))
        for path in dict.fromkeys([*files, *_libraries(files)]):
            tar.add(path.resolve(), _inside(path))
        for tree in (shared, Path("/usr/share/zoneinfo")):
            tar.add(tree, str(tree).lstrip("/"))
        for name, text in _USERS.items():
            add_entry(tar, name, tarfile.REGTYPE, text=text)
        add_entry(tar, "entrypoint.sh", tarfile.REGTYPE, mode=0o755, text=_ENTRYPOINT)
    run = {
        "Entrypoint": ["/entrypoint.sh"],
        "User": f"{_USER_ID}:{_USER_ID}",
        "Env": [f"PATH={programs}:/usr/bin:/bin"],
        "StopSignal": "SIGINT",
    }
    return layout(folder / "postgres.tar", POSTGRES_IMAGE, layer.getvalue(), run)


def _libraries(files: Iterable[Path]) -> Iterator[Path]:
    """The shared libraries that programs are linked with, by the paths that the dynamic linker looks for."""
    said = subprocess.run(["ldd", *map(str, files)], check=True, capture_output=True, text=True).stdout
    for line in said.splitlines():
        path = next((word for word in line.split() if word.startswith("/") and not word.endswith(":")), None)
        if path is not None:
            yield Path(path)


def _inside(path: Path) -> str:
    """A path's place in the image: below `usr` where this machine has links such as /lib."""
    first = path.parts[1]
    return f"usr{path}" if first in _LINKS and Path("/", first).is_symlink() else str(path).lstrip("/")
