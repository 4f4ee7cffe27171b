"""A forked process is the one that a cold start would have made; what cannot be forked starts cold; nothing is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tuneyard.runtime.gang.mailbox import is_alive
from tuneyard.warm import WarmServer, shim_command, start
from tuneyard.warm.process import Forked, ask
from tuneyard.warm.wire import connect, receive, request_here, send

PROBES = "tests.integration.warm.probes"
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@contextlib.contextmanager
def serving(tmp_path: Path, *modules: str, absent: tuple[str, ...] = ()) -> Iterator[WarmServer]:
    made = WarmServer([PROBES, *modules], environment=os.environ, log=tmp_path / "server.log", absent=absent)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WarmServer]:
    with serving(tmp_path) as made:
        yield made


def forked(server: WarmServer, function: str, *arguments: str) -> Forked:
    process, why = start(server.socket, f"{PROBES}:{function}", arguments)
    assert isinstance(process, Forked), why
    return process


def seen(socket: Path | None, *arguments: str) -> dict[str, Any]:
    """What a process sees of itself: forked, or cold where `socket` is None."""
    reading, writing = os.pipe()
    process, why = start(socket, f"{PROBES}:see", arguments, descriptors=lambda: [writing])
    os.close(writing)
    assert bool(why) is False
    with os.fdopen(reading) as answer:
        found: dict[str, Any] = json.loads(answer.read())
    assert process.wait(30) == 0
    return found


def children(pid: int) -> list[str]:
    found: list[str] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += (task / "children").read_text().split()
    return found


def wait_until(holds: Callable[[], bool], limit_s: float = 60.0) -> bool:
    deadline = time.monotonic() + limit_s
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds()


def test_what_needs_a_part_of_the_stack_does_not_wait_for_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOW_MODULE", str(tmp_path / "go on"))
    with serving(tmp_path, "json", "tests.integration.warm.slow_module", "wave") as server:
        early = ask(server.socket, ["early"], target="os:getpid", after=PROBES)
        assert gone(early.pid)
        with pytest.raises(OSError, match="did not answer within"):
            ask(server.socket, ["late"], target="os:getpid", limit_s=0.5)
        waiting = connect(server.socket, 5)
        send(waiting, {**request_here(["late"], target="os:getpid"), "needs": [], "descriptors": 3}, [0, 1, 2])
        (tmp_path / "go on").touch()
        answer = receive(waiting, 60)
        assert answer is not None
        assert "pid" in answer[0]
        waiting.close()
        assert early.wait(60) == 0


def test_a_server_that_is_told_to_end_while_it_loads_takes_its_forks_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOW_MODULE", str(tmp_path / "never"))
    with serving(tmp_path, "tests.integration.warm.slow_module") as server:
        early = ask(server.socket, ["early"], target="signal:pause", after=PROBES)
    assert gone(early.pid)


def gone(pid: int) -> bool:
    return wait_until(lambda: not is_alive(pid))


@pytest.mark.parametrize("interrupt", [signal.default_int_handler, signal.SIG_IGN])
def test_a_fork_is_what_a_cold_start_would_be(server: WarmServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupt: Any) -> None:
    monkeypatch.setenv("PROBE", "of the one who asks")
    monkeypatch.chdir(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    mask, cores = os.umask(0o027), os.sched_getaffinity(0)
    before = signal.signal(signal.SIGINT, interrupt)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 7, hard))
    os.sched_setaffinity(0, {min(cores)})
    try:
        warm, cold = seen(server.socket, "one", "two"), seen(None, "one", "two")
    finally:
        signal.signal(signal.SIGINT, before)
        os.umask(mask)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        os.sched_setaffinity(0, cores)
    assert warm.pop("random") != cold.pop("random")
    assert ("built-in function default_int_handler" in warm["signals"]["SIGINT"]) is (interrupt is signal.default_int_handler)
    # The descriptor's number is where the two may differ; that nothing else is open must not.
    assert len(warm.pop("descriptors")) == len(cold.pop("descriptors"))
    assert warm == cold
    assert warm["arguments"] == ["one", "two"]
    assert (warm["probe"], warm["files"], warm["cores"]) == ("of the one who asks", soft - 7, [min(cores)])


def test_two_forks_draw_other_random_numbers(tmp_path: Path) -> None:
    with serving(tmp_path, "numpy.random") as server:
        first, second = seen(server.socket), seen(server.socket)
    assert first["random"] != second["random"]
    assert first["numpy"] != second["numpy"]


def test_exit_codes_and_signals_come_back(server: WarmServer) -> None:
    assert forked(server, "leave").wait(30) == 7
    assert forked(server, "fail").wait(30) == 1
    assert forked(server, "crash").wait(30) == -signal.SIGSEGV
    asleep = forked(server, "sleep")
    asleep.send_signal(signal.SIGTERM)
    assert asleep.wait(30) == -signal.SIGTERM


def test_what_it_starts_is_ended_with_it(server: WarmServer) -> None:
    reading, writing = os.pipe()
    process, _ = start(server.socket, f"{PROBES}:sleep_with_a_child", descriptors=lambda: [writing])
    os.close(writing)
    assert os.read(reading, 5) == b"ready"
    os.close(reading)
    (child,) = children(process.pid)
    process.kill()
    assert process.wait(30) == -signal.SIGKILL
    assert gone(int(child))


def test_the_death_of_who_asked_ends_it(server: WarmServer) -> None:
    code = f"""
import time
from pathlib import Path
from tuneyard.warm import start
print(start(Path({str(server.socket)!r}), "{PROBES}:sleep")[0].pid, flush=True)
time.sleep(600)
"""
    asker = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert asker.stdout is not None
    pid = int(asker.stdout.readline())
    asker.kill()
    asker.wait()
    assert gone(pid)


def test_the_death_of_the_owner_ends_the_server_and_its_forks(tmp_path: Path) -> None:
    code = f"""
import os, time
from pathlib import Path
from tuneyard.warm import WarmServer, start
server = WarmServer(["{PROBES}"], environment=os.environ, log=Path({str(tmp_path / "log")!r}))
print(server.pid, start(server.socket, "{PROBES}:sleep")[0].pid, server.socket, flush=True)
time.sleep(600)
"""
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    server, fork, socket = owner.stdout.readline().split()
    owner.kill()
    owner.wait()
    assert gone(int(server))
    assert gone(int(fork))
    assert not Path(socket).exists()


def test_a_fork_outlives_its_server_and_the_next_start_is_cold(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        asleep = forked(server, "sleep")
        os.kill(server.pid, signal.SIGKILL)
        with pytest.raises(subprocess.TimeoutExpired):
            asleep.wait(0.3)
        process, why = start(server.socket, f"{PROBES}:leave")
        assert process.wait(30) == 7
        assert "no fork server answers" in why or "ended" in why
        asleep.kill()
        assert asleep.wait(30) == -signal.SIGKILL
        assert gone(asleep.pid)


def test_a_server_that_dies_while_it_is_asked_means_a_cold_start(tmp_path: Path) -> None:
    with serving(tmp_path, "json.tool", "this_module_does_not_exist") as server:
        for _ in range(2):  # the second finds no server any more
            process, why = start(server.socket, f"{PROBES}:leave")
            assert process.wait(30) == 7
            assert why == "the fork server ended: ModuleNotFoundError: No module named 'this_module_does_not_exist'"
    process, why = start(tmp_path / "nowhere" / "server", f"{PROBES}:leave")
    assert process.wait(30) == 7
    assert why.startswith(f"no fork server answers at {tmp_path}/nowhere/server (")


def test_other_settings_packages_and_hidden_modules_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(tmp_path, absent=("bitsandbytes",)) as server:
        assert seen(server.socket)
        with pytest.raises(OSError, match="started without bitsandbytes"):
            ask(server.socket, ["x"], target=f"{PROBES}:leave", needs=["bitsandbytes"])
        with monkeypatch.context() as patched:
            patched.setenv("PYTHONHASHSEED", "7")
            with pytest.raises(OSError, match="PYTHONHASHSEED had another value"):
                ask(server.socket, ["x"], target=f"{PROBES}:leave")
        with monkeypatch.context() as patched:
            patched.setattr(sys, "executable", "/usr/bin/python9")
            with pytest.raises(OSError, match="it runs"):
                ask(server.socket, ["x"], target=f"{PROBES}:leave")


def test_a_cache_folder_is_another_setting_unless_torch_has_set_it_by_itself(
    server: WarmServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", default_cache_dir())
    assert seen(server.socket)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    with pytest.raises(OSError, match="TORCHINDUCTOR_CACHE_DIR had another value"):
        ask(server.socket, ["x"], target=f"{PROBES}:leave")


def test_what_trl_and_scikit_learn_set_is_no_other_setting(server: WarmServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KMP_DUPLICATE_LIB_OK", "True")
    """A command, or a notebook, has looked at data with TRL's chat templates."""
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "ERROR")
    assert seen(server.socket)
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "DEBUG")
    with pytest.raises(OSError, match="VLLM_LOGGING_LEVEL had another value"):
        ask(server.socket, ["x"], target=f"{PROBES}:leave")


def test_packages_that_changed_since_it_started_mean_a_cold_start(server: WarmServer) -> None:
    import sysconfig

    assert seen(server.socket)
    installed = Path(sysconfig.get_path("purelib")) / f"tuneyard_test_{os.getpid()}.dist-info"
    installed.mkdir()
    try:
        process, why = start(server.socket, f"{PROBES}:leave")
        assert process.wait(30) == 7
        assert "packages were installed or changed" in why
    finally:
        installed.rmdir()


def test_nothing_is_left_after_two_hundred_starts(server: WarmServer) -> None:
    def held() -> tuple[int, int]:
        return len(os.listdir(f"/proc/{server.pid}/fd")), len(children(server.pid))

    assert forked(server, "leave").wait(30) == 7
    before, own = held(), len(os.listdir("/proc/self/fd"))  # perhaps with the client that has just had its answer
    memory = _memory_kb(server.pid)
    for _ in range(40):
        assert [process.wait(30) for process in [forked(server, "leave") for _ in range(5)]] == [7] * 5
    assert wait_until(lambda: all(now <= then for now, then in zip(held(), before, strict=True)))
    assert len(os.listdir("/proc/self/fd")) == own
    assert _memory_kb(server.pid) < memory + 2000


def test_a_message_that_is_none_and_a_silent_client_disturb_nobody(server: WarmServer) -> None:
    for garbage in (b"\xff\xff\xff\xff", b"\0\0\0\x04nope", b"\0\0\0\x02[]", b"\0\0"):
        with connect(server.socket, 5.0) as client:
            client.sendall(garbage)
    with connect(server.socket, 5.0) as client:
        send(client, {"python": "none"})
        answer = receive(client)
        assert answer is None or "refused" in answer[0]
    with connect(server.socket, 5.0):
        assert forked(server, "leave").wait(30) == 7


def test_a_server_that_was_held_up_gives_up_who_has_gone_and_serves_who_comes(server: WarmServer) -> None:
    """A fork that dies, its client that leaves, and a request that nobody waits for any more, all seen at once."""
    asleep = forked(server, "sleep")
    os.kill(server.pid, signal.SIGSTOP)
    asleep.kill()
    with pytest.raises(OSError, match="did not answer"):
        ask(server.socket, ["x"], target=f"{PROBES}:sleep", limit_s=0.2)
    assert asleep._connection is not None
    asleep._connection.close()
    os.kill(server.pid, signal.SIGCONT)
    assert forked(server, "leave").wait(30) == 7
    assert wait_until(lambda: not children(server.pid))


def test_many_at_once_and_bad_requests_leave_it_as_it_was(server: WarmServer) -> None:
    assert forked(server, "leave").wait(30) == 7  # it has loaded
    before = len(os.listdir(f"/proc/{server.pid}/fd"))  # perhaps with the client that has just had its answer
    asleep = [forked(server, "sleep") for _ in range(120)]
    for process in asleep:
        process.kill()
    assert {process.wait(60) for process in asleep} == {-signal.SIGKILL}
    request = {**request_here(["x"], target=f"{PROBES}:leave"), "descriptors": 3}
    bad: list[dict[str, Any]] = [{**request, "environment": ["a"]}, {**request, "folder": "/nowhere"}, {**request, "descriptors": 0}, {}]
    for each in bad:
        with connect(server.socket, 5.0) as client:
            send(client, each, [0, 1, 2])
            answer = receive(client)
            assert answer is None or "status" in answer[0] or "refused" in answer[0] or receive(client) is not None
    assert forked(server, "leave").wait(30) == 7
    assert wait_until(lambda: len(os.listdir(f"/proc/{server.pid}/fd")) <= before)


def test_secrets_are_neither_needed_nor_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without = {name: value for name, value in os.environ.items() if name != "HF_PRIVATE"}
    made = WarmServer([PROBES], environment=without, log=tmp_path / "server.log", secret=["HF_PRIVATE"])
    try:
        monkeypatch.setenv("HF_PRIVATE", "very-secret")
        assert forked(made, "leave").wait(30) == 7
        assert b"very-secret" not in Path(f"/proc/{made.pid}/environ").read_bytes()
    finally:
        made.close()


def test_a_path_longer_than_an_address_is_served(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    command = [sys.executable, "-P", "-m", "tuneyard.warm.server", "--socket", str(folder / "server"), "--modules", PROBES]
    process = subprocess.Popen(command)
    try:
        while not (folder / "server").exists():
            assert process.poll() is None
            time.sleep(0.01)
        assert ask(folder / "server", ["x"], target=f"{PROBES}:leave").wait(30) == 7
    finally:
        process.terminate()
        process.wait()
    assert not (folder / "server").exists()


def test_where_no_process_may_be_made_the_server_says_so(tmp_path: Path) -> None:
    with serving(tmp_path, "tests.integration.warm.no_forks") as server:
        for _ in range(2):
            with pytest.raises(OSError, match="it cannot fork: Resource temporarily unavailable"):
                ask(server.socket, ["x"], target=f"{PROBES}:leave")


def test_the_shim_runs_a_script_warm_and_cold_with_the_same_end(server: WarmServer, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys\nprint(sys.argv[1], __name__, __file__, flush=True)\nsys.exit(int(sys.argv[1]))\n")
    for socket in (server.socket, tmp_path / "nobody"):
        command = f"exec {shim_command(socket)} -u {script} 5"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (5, f"5 __main__ {script}\n"), done.stderr
        assert ("starting cold" in done.stderr) is (socket != server.socket)


def test_the_shim_hands_sigterm_on_and_dies_of_what_its_process_dies_of(server: WarmServer, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import time\nprint('up', flush=True)\ntime.sleep(600)\n")
    shim = subprocess.Popen(["bash", "-c", f"exec {shim_command(server.socket)} {script}"], stdout=subprocess.PIPE, text=True)
    assert shim.stdout is not None
    assert shim.stdout.readline() == "up\n"
    shim.terminate()
    assert shim.wait(30) == -signal.SIGTERM


def _memory_kb(pid: int) -> int:
    """Pages of its own, whoever shares them: its part of shared ones (Pss) grows where another process ends."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("Anonymous:")))
