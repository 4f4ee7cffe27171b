"""Real servers for tests: S3 (versitygw), HDFS (Hadoop's MiniDFSCluster), PostgreSQL, and the Chromium browser.

Each is found on PATH, or built or installed once into the user's cache; each runs on a free port over a temporary folder and
is ended by its process id. A test that cannot get its server is skipped, and says why.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TextIO

import psutil
import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "tuneyard"
VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
HADOOP_VERSION = "3.4.1"
START_LIMIT_S = 90
APT_LIMIT_S = 300
APT_RETRY_S = 2


_PORTS = range(20_000, 30_000)
"""Below the ports that Linux gives to connections (from 32768) and to Kubernetes' node ports, above those of Ray's workers."""
_held_ports: list[TextIO] = []


def free_port() -> int:
    """A port that no other caller gets while this process lives, in whatever process: parts of the suite start servers side by side."""
    locks = CACHE / "ports"
    locks.mkdir(parents=True, exist_ok=True)
    for port in random.Random(os.urandom(8)).sample(_PORTS, len(_PORTS)):
        lock = (locks / str(port)).open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as server:
                server.bind(("127.0.0.1", port))
        except OSError:
            lock.close()
            continue
        _held_ports.append(lock)
        return port
    raise RuntimeError(f"no port of {_PORTS.start} to {_PORTS.stop} is free")


def _answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def _wait_until(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline and process.poll() is None:
        if ready():
            return
        time.sleep(0.1)
    ended = "is not ready" if process.poll() is None else f"ended with {process.returncode}"
    raise RuntimeError(f"the server {ended}; its log:\n{log.read_text(errors='replace')[-2000:]}")


@contextmanager
def running(
    command: list[str],
    *,
    port: int,
    log: Path,
    env: dict[str, str] | None = None,
    user: str | None = None,
    stop: signal.Signals = signal.SIGTERM,
    ready: Callable[[], bool] = lambda: True,
) -> Iterator[int]:
    """A server process, from the moment its port answers and `ready` says so; its process id."""
    everything = {**os.environ, **(env or {})}
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=everything, user=user, cwd=log.parent, start_new_session=True)
    try:
        _wait_until(lambda: _answers(port) and ready(), process, log)
        yield process.pid
    finally:
        process.send_signal(stop)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Held by one thread of one process at a time; let go when that process ends, however it ends."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """The folder CACHE/`name`, filled by `make` unless an earlier test run did; of several processes, one makes it."""
    folder = CACHE / name
    with locked(folder.with_suffix(".lock")):
        if not folder.exists():
            staged = folder.with_name(f"{folder.name}.tmp-{os.getpid()}")
            shutil.rmtree(staged, ignore_errors=True)
            staged.mkdir()
            make(staged)
            staged.rename(folder)
    return folder


def call(command: list[str], *, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    """Run a tool that prepares a server. Skips the test, with the tool's last words, where it fails."""
    _expect_success(command, _outcome(command, cwd=cwd, env=env))


def _outcome(command: list[str], *, cwd: Path | None = None, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    # No limit: beside other work Go has taken more than a quarter of an hour for one server. The suite ends what hangs.
    return subprocess.run(command, cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False)


def _expect_success(command: list[str], done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode != 0:
        pytest.skip(f"`{' '.join(command[:3])} …` failed: {(done.stderr or done.stdout).strip()[-300:]}")


def installed(program: str, package: str, *, folders: str | None = None) -> str:
    """Path of a program; its Debian package is installed where that is possible.

    `folders`: where to look for the program, separated as in PATH, which is the default. apt-get runs one at a time: two clusters that
    boot at once miss the same packages, and a second `apt-get update` fails instead of waiting.
    """
    if shutil.which(program, path=folders) is None:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            pytest.skip(f"{program} is missing: install it (Debian: apt-get install {package})")
        with locked(CACHE / "apt-get.lock"):
            if shutil.which(program, path=folders) is None:
                _apt_get("update")
                _apt_get("install", "-y", "--no-install-recommends", package)
    found = shutil.which(program, path=folders)
    if found is None:
        pytest.skip(f"Debian's {package} brought no {program} into {folders or 'PATH'}: see `dpkg -L {package}`")
    return found


def _apt_get(*words: str) -> None:
    """Waits for an apt-get that others started, such as a daily upgrade: for dpkg's lock by its own option, for the package lists' here."""
    command = ["apt-get", "-o", f"DPkg::Lock::Timeout={APT_LIMIT_S}", *words]
    deadline = time.monotonic() + APT_LIMIT_S
    while True:
        done = _outcome(command, env={"DEBIAN_FRONTEND": "noninteractive"})
        if "/lists/lock" not in done.stderr or time.monotonic() > deadline:
            return _expect_success(command, done)
        time.sleep(APT_RETRY_S)


# --- S3


@dataclass(frozen=True)
class S3:
    """A running S3 server. `root` is the folder that holds its buckets; `restarted` starts one again on the same port."""

    port: int
    root: Path
    logs: Path
    bucket: str = "tests"
    access_key: str = "tester-access"
    secret_key: str = "tester-very-secret-key"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": "us-east-1",
        }

    @contextmanager
    def started(self) -> Iterator[int]:
        command = [versitygw(), "--access", self.access_key, "--secret", self.secret_key, "--region", "us-east-1", "--quiet"]
        command += ["--port", f"127.0.0.1:{self.port}", "posix", str(self.root)]
        with running(command, port=self.port, log=self.logs / "versitygw.log") as pid:
            yield pid


def versitygw() -> str:
    """Path of the S3 server: from PATH, or built once by Go (about a minute, or six on a cold cache)."""
    found = shutil.which("versitygw")
    if found:
        return found
    if shutil.which("go") is None:
        pytest.skip("no versitygw on PATH, and no Go to build it: install either")

    def build(folder: Path) -> None:
        call(["go", "install", VERSITYGW], env={"GOFLAGS": "-mod=mod", "GOBIN": str(folder)})

    return str(made_once(f"bin/{hashlib.sha256(VERSITYGW.encode()).hexdigest()[:16]}", build) / "versitygw")


def make_s3(folder: Path) -> S3:
    """An S3 server's place under `folder`, with one bucket; not started."""
    server = S3(free_port(), folder / "buckets", folder)
    (server.root / server.bucket).mkdir(parents=True)
    return server


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    server = make_s3(tmp_path_factory.mktemp("s3"))
    with server.started():
        yield server


@pytest.fixture
def s3(s3_server: S3, monkeypatch: pytest.MonkeyPatch) -> S3:
    """A running S3 server, with the environment set for it."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return s3_server


# --- HDFS

_JARS = {
    **{f"org.apache.hadoop:{name}": HADOOP_VERSION for name in ("hadoop-client-api", "hadoop-client-runtime", "hadoop-client-minicluster")},
    # Part of Java until 11, and still needed by Hadoop's web interface.
    "javax.xml.bind:jaxb-api": "2.3.1",
}
_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>dev.tuneyard</groupId><artifactId>test-hdfs</artifactId><version>1</version>
<dependencies>{"".join(_DEPENDENCY.format(*name.split(":"), version) for name, version in _JARS.items())}</dependencies></project>
"""


def hadoop_jars() -> Path:
    """Folder with Hadoop's own name node and data node (90 MB, fetched once by Maven)."""
    if shutil.which("java") is None or shutil.which("mvn") is None:
        pytest.skip("HDFS tests need java and mvn: install them (Debian: apt-get install default-jre-headless maven)")

    def fetch(folder: Path) -> None:
        (folder / "pom.xml").write_text(_POM)
        call(["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder}"], cwd=folder)

    return made_once(f"hadoop/{hashlib.sha256(_POM.encode()).hexdigest()[:16]}", fetch)


_PYDOOP = "pydoop==2.0.0"
"""Its source archive holds that of libhdfs, which Hadoop's jars lack."""


def libhdfs() -> dict[str, str]:
    """The environment in which hdfs:// works: Java, Hadoop's jars, and libhdfs, compiled once."""
    jni = Path(shutil.which("javac") or "javac").resolve().parents[1]
    if not (jni / "include" / "jni.h").exists() or shutil.which("gcc") is None:
        pytest.skip("libhdfs needs a JDK and gcc: install them (Debian: apt-get install default-jdk-headless gcc)")
    jars = hadoop_jars()

    def build(folder: Path) -> None:
        old = folder / "constraints"  # its setup.py, which pip runs, imports pkg_resources
        old.write_text("setuptools<70\n")
        env = {"PIP_CONSTRAINT": str(old), "JAVA_HOME": str(jni)}
        call([sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", "-d", str(folder), _PYDOOP], env=env)
        call(["tar", "-xzf", str(next(folder.glob("*.tar.gz"))), "-C", str(folder), "--strip-components=3", "pydoop-2.0.0/src/libhdfs"])
        sources = [str(path.relative_to(folder)) for path in folder.rglob("*.c") if "windows" not in path.parts]
        headers = [str(jni / "include"), str(jni / "include" / "linux"), ".", "common", "include", "os", "os/posix"]
        java = str(jni / "lib" / "server")
        words = ["-shared", "-fPIC", "-O1", "-w", *(f"-I{each}" for each in headers), *sources, f"-L{java}", "-ljvm", f"-Wl,-rpath,{java}"]
        call(["gcc", *words, "-o", "libhdfs.so"], cwd=folder)

    library = made_once(f"libhdfs/{hashlib.sha256(f'{_PYDOOP} {jni}'.encode()).hexdigest()[:16]}", build)
    classes = ":".join(str(path) for path in sorted(jars.glob("*.jar")))
    options = "-Xmx200m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    return {"JAVA_HOME": str(jni), "ARROW_LIBHDFS_DIR": str(library), "CLASSPATH": classes, "LIBHDFS_OPTS": options}


@dataclass(frozen=True)
class Hdfs:
    """Ports of a real name node, with one data node behind it: of WebHDFS, and of Hadoop's own protocol."""

    http_port: int
    rpc_port: int


@pytest.fixture(scope="session")
def webhdfs_port(hdfs_server: Hdfs) -> int:
    """Port of a real name node's WebHDFS interface."""
    return hdfs_server.http_port


@pytest.fixture(scope="session")
def hdfs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    folder = tmp_path_factory.mktemp("hdfs")
    http_port, rpc_port = free_port(), free_port()
    command = [
        "java",
        "-Xmx400m",
        # It ends before better machine code and a parallel collector would pay.
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-cp",
        f"{hadoop_jars()}/*",
        "org.apache.hadoop.test.MiniDFSClusterManager",
        "-format",
        "-datanodes",
        "1",
    ]
    details = folder / "up.json"  # Written when the data node has joined, which is after the first answer of the name node.
    command += ["-httpport", str(http_port), "-nnport", str(rpc_port), "-writeDetails", str(details)]
    with running(command, port=http_port, log=folder / "hdfs.log", env={"HADOOP_USER_NAME": "tester"}, ready=details.exists):
        yield Hdfs(http_port, rpc_port)


# --- PostgreSQL


def postgres_folder() -> Path:
    """Folder of PostgreSQL's server programs, which Debian keeps off PATH."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if versions:
        return versions[-1].parent
    found = shutil.which("initdb")
    if found is None:
        installed("pg_lsclusters", "postgresql")
        found = str(sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))[-1])
    return Path(found).parent


class PostgresServer:
    """A PostgreSQL server that may be killed and started again. `url`: of its maintenance database, for SQLAlchemy.

    `durable`: with fsync, which tests do without. `address`: of this machine, by which others reach it too; `url` then names it.
    """

    def __init__(self, name: str = "", *, durable: bool = False, address: str = "127.0.0.1") -> None:
        programs = postgres_folder()
        # PostgreSQL refuses to run as root, and pytest's own folders are closed to other users.
        user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        self.folder = Path("/tmp").resolve() / f"tuneyard-postgres-{os.getpid()}{name}"
        self.folder.mkdir(mode=0o700)
        shutil.chown(self.folder, user)
        port = free_port()
        self.url = f"postgresql+psycopg://tester@{address}:{port}/postgres"
        as_user = user if os.geteuid() == 0 else None
        prepare = [str(programs / "initdb"), "-D", str(self.folder / "data"), "-U", "tester", "-A", "trust", "--no-sync"]
        subprocess.run(prepare, check=True, capture_output=True, user=as_user, cwd=self.folder)
        command = [str(programs / "postgres"), "-D", str(self.folder / "data"), "-p", str(port), "-k", str(self.folder)]
        command += ["-h", ",".join(dict.fromkeys(["127.0.0.1", address]))]
        if address != "127.0.0.1":
            with (self.folder / "data" / "pg_hba.conf").open("a") as rules:
                rules.write("host all all all trust\n")
        self._running = partial(
            running, command if durable else [*command, "-F"], port=port, log=self.folder / "log", user=as_user, stop=signal.SIGINT
        )
        self._stack = ExitStack()
        self._pid = 0

    def start(self) -> None:
        self._pid = self._stack.enter_context(self._running())

    def kill(self) -> None:
        """SIGKILL to the server and all its processes."""
        server = psutil.Process(self._pid)
        processes = [server, *server.children(recursive=True)]  # each in a session of its own
        for each in processes:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        self._stack.close()
        psutil.wait_procs(processes)

    def remove(self) -> None:
        self._stack.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """URL of a PostgreSQL server's maintenance database, for SQLAlchemy."""
    server = PostgresServer()
    try:
        server.start()
        yield server.url
    finally:
        server.remove()


@pytest.fixture
def mortal() -> Iterator[PostgresServer]:
    """A PostgreSQL server of the test's own, which it may kill."""
    server = PostgresServer("-mortal")
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def postgres(postgres_server: str, request: pytest.FixtureRequest) -> str:
    """URL of a new, empty PostgreSQL database."""
    import sqlalchemy

    name = "t" + hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:16]
    engine = sqlalchemy.create_engine(postgres_server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return postgres_server.rsplit("/", 1)[0] + f"/{name}"


# --- browser


def chromium() -> str:
    """Path of a Chromium or Chrome."""
    for name in ("chromium", "google-chrome", "chromium-browser"):
        found = shutil.which(name)
        if found:
            return found
    return installed("chromium", "chromium")
