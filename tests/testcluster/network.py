"""A cluster's own network: a bridge with an address, a range for pods, and no rules in any packet filter.

Every server of a cluster listens on the cluster's own addresses, so that clusters on one machine share no port. Without root there are no
bridges and no pods; the address is then one of the 127.0.0.0/8 that every Linux machine has.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.testcluster.unavailable import Unavailable

CLAIMS = Path("/tmp/tuneyard-networks")
"""A file per network in use, with the state folder that uses it."""
_PODS_OF_NODE = ((4, 159), (160, 254))


@dataclass(frozen=True)
class Network:
    number: int
    bridge: str | None
    """None without root."""

    @property
    def address(self) -> str:
        """Where the cluster's API server listens: for this machine, and for pods of any cluster on it."""
        return f"10.213.{self.number}.1" if self.bridge else self.loopback

    @property
    def loopback(self) -> str:
        """Where servers listen that pods must not reach."""
        return f"127.213.{self.number}.1"

    @property
    def pods(self) -> str:
        return f"10.213.{self.number}.0/24"

    def node(self, index: int) -> str:
        """Address of a node; the first has the cluster's own."""
        return f"10.213.{self.number}.{1 + index}" if index else self.address

    def node_loopback(self, index: int) -> str:
        return f"127.213.{self.number}.{1 + index}"

    def pods_of(self, index: int) -> tuple[str, str]:
        """First and last address of a node's pods: nodes share the bridge and its range."""
        first, last = _PODS_OF_NODE[index]
        return f"10.213.{self.number}.{first}", f"10.213.{self.number}.{last}"

    def add_node(self, index: int) -> None:
        """Give the bridge the address of a further node."""
        assert self.bridge is not None
        _ip("address", "replace", f"{self.node(index)}/24", "dev", self.bridge)


def bridge_name(folder: Path) -> str:
    """Follows from the state folder, so that what a killed run made is found without its having noted anything."""
    return "ty" + hashlib.sha256(str(folder).encode()).hexdigest()[:10]


def claim(folder: Path, *, bridge: bool = True) -> Network:
    """A new network for the cluster of a state folder. `bridge`: whether it may have one, for pods."""
    with _claims():
        network = Network(_free_number(), bridge_name(folder) if bridge and os.geteuid() == 0 else None)
        (CLAIMS / str(network.number)).write_text(str(folder))
    (folder / "network.json").write_text(json.dumps(asdict(network)))
    if network.bridge:
        _ip("link", "add", network.bridge, "type", "bridge")
        _ip("address", "add", f"{network.address}/24", "dev", network.bridge)
        _ip("link", "set", network.bridge, "up")
    return network


def of(folder: Path) -> Network:
    """The network that a cluster has claimed."""
    return Network(**json.loads((folder / "network.json").read_text()))


def release(folder: Path) -> None:
    """Remove a cluster's network. Nothing happens where there is none."""
    if Path(f"/sys/class/net/{bridge_name(folder)}").exists():
        _ip("link", "delete", bridge_name(folder))
    if CLAIMS.exists():
        with _claims():
            for file in CLAIMS.glob("[0-9]*"):
                if file.read_text() == str(folder):
                    file.unlink()


def _free_number() -> int:
    taken = {int(file.name) for file in CLAIMS.glob("[0-9]*") if Path(file.read_text()).exists()} | _numbers_of_bridges()
    return next(number for number in range(1, 255) if number not in taken)


def _numbers_of_bridges() -> set[int]:
    """Numbers whose bridge stands though its claim may be gone, such as after /tmp was emptied: pods of two bridges would share a range."""
    shown = subprocess.run(["ip", "-oneline", "-4", "address"], capture_output=True, text=True, check=False).stdout
    return {int(number) for number in re.findall(r"\b10\.213\.(\d+)\.1/24", shown)}


@contextmanager
def _claims() -> Iterator[None]:
    CLAIMS.mkdir(exist_ok=True)
    with (CLAIMS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"`ip {' '.join(words)}` failed: {done.stderr.strip()}; pods need a machine that allows bridges")
