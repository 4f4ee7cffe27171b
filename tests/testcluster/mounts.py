"""Mounts below a folder, and their end."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def mounts_below(folder: Path) -> list[Path]:
    """Mount points in or below a folder, the innermost first."""
    points = [Path(line.split()[4].replace("\\040", " ")) for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [point for point in reversed(points) if point.is_relative_to(folder)]


def unmount_below(folder: Path) -> None:
    """Lazily: what still holds one of them loses it when it ends."""
    for point in mounts_below(folder):
        subprocess.run(["umount", "--lazy", str(point)], capture_output=True, check=False)


def small_disk(folder: Path, megabytes: int) -> Path:
    """An empty file system of this size, mounted at `folder`, that every user may write to."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=1777", "tmpfs", str(folder)], check=True)
    return folder


def remove_folder(folder: Path) -> None:
    """Remove a folder with all in it, but never the content of something that is mounted there."""
    unmount_below(folder)
    left = mounts_below(folder)
    if left:
        raise RuntimeError(f"cannot remove {folder}: {left[0]} is still mounted")
    shutil.rmtree(folder, ignore_errors=True)
