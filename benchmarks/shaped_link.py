"""Two hosts on one machine, joined by a link of a chosen speed and delay: network namespaces, and a relay between two TUN devices.

The relay holds each packet until a link of that speed would have sent it, and then for the delay. It stands in for `tc netem`, which
kernels do not always have. Packets are up to 64 kB, so that it needs little of a core. Needs root and /dev/net/tun.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

MTU = 65_000
QUEUE_BYTES = 4 << 20
"""Of packets that wait for the link, per direction; more are left with their sender."""
_LOOK_S = 0.2
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000


@dataclass(frozen=True)
class Hosts:
    """Two namespaces; `addresses` by host. `speed`: a file with the Gbit/s of each direction, which may be changed. `device`: the
    name of each end of the link."""

    names: tuple[str, str]
    addresses: tuple[str, str]
    speed: Path
    device: str = "lan"

    def inside(self, host: int, command: list[str]) -> list[str]:
        return ["ip", "netns", "exec", self.names[host], *command]


@contextmanager
def two_hosts(speed: Path, delay_ms: float) -> Iterator[Hosts]:
    """Two hosts while this lasts. `speed`: see `Hosts`; `delay_ms`: one way."""
    tag = str(os.getpid())
    hosts = Hosts((f"hosta{tag}", f"hostb{tag}"), ("10.77.0.1", "10.77.0.2"), speed)
    relay = subprocess.Popen(
        [sys.executable, __file__, str(speed), str(delay_ms), tag],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert relay.stdin is not None
    assert relay.stdout is not None
    try:
        relay.stdout.readline()
        for host, name in enumerate(hosts.names):
            _ip("netns", "add", name)
            _ip("link", "set", f"tun{host}-{tag}", "netns", name)
            inside = ("-n", name)
            _ip(*inside, "link", "set", f"tun{host}-{tag}", "name", hosts.device, "mtu", str(MTU))
            _ip(*inside, "address", "add", f"{hosts.addresses[host]}/24", "dev", hosts.device)
            _ip(*inside, "link", "set", hosts.device, "up")
            _ip(*inside, "link", "set", "lo", "up")
            subprocess.run(hosts.inside(host, ["sysctl", "-qw", "net.ipv4.tcp_congestion_control=reno"]), check=False)
        yield hosts
    finally:
        relay.stdin.close()
        relay.wait(timeout=30)
        for name in hosts.names:
            subprocess.run(["ip", "netns", "delete", name], check=False, stderr=subprocess.DEVNULL)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@dataclass
class Direction:
    """Packets from one device to the other. `free_at`: when the link has sent all that it was given."""

    source: int
    goal: int
    bytes_s: float
    delay_s: float
    free_at: float = 0.0
    waiting: deque[tuple[float, bytes]] = field(default_factory=deque)
    queued: int = 0

    def take(self, now: float) -> None:
        packet = os.read(self.source, 1 << 16)
        self.free_at = max(self.free_at, now) + len(packet) / self.bytes_s
        self.waiting.append((self.free_at + self.delay_s, packet))
        self.queued += len(packet)

    def deliver(self, now: float) -> None:
        while self.waiting and self.waiting[0][0] <= now:
            _, packet = self.waiting.popleft()
            self.queued -= len(packet)
            try:
                os.write(self.goal, packet)
            except OSError:
                continue  # the device is not up yet, or no longer


def relay(speed: Path, delay_ms: float, tag: str) -> None:
    """Carry packets until stdin is closed."""
    ends = [_tun(f"tun{host}-{tag}") for host in (0, 1)]
    ways = [Direction(*pair, 0.0, delay_ms / 1e3) for pair in (ends, ends[::-1])]
    print("ready", flush=True)
    looked = 0.0
    while True:
        now = time.monotonic()
        if now - looked > _LOOK_S:
            looked = now
            for way in ways:
                way.bytes_s = float(speed.read_text()) * 1e9 / 8
        for way in ways:
            way.deliver(now)
        due = min((way.waiting[0][0] for way in ways if way.waiting), default=now + 0.2)
        reading = [way.source for way in ways if way.queued < QUEUE_BYTES]
        readable, _, _ = select.select([*reading, sys.stdin.fileno()], [], [], max(0.0, due - time.monotonic()))
        if sys.stdin.fileno() in readable:
            break
        now = time.monotonic()
        for way in ways:
            if way.source in readable:
                way.take(now)


def _tun(name: str) -> int:
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TUN | _IFF_NO_PI))
    return device


if __name__ == "__main__":
    relay(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
