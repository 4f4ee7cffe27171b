"""Libraries of NVIDIA's driver that say, on a machine without one, what they say where there is a GPU: that they are initialized or not."""

from __future__ import annotations

from pathlib import Path

from tests.servers.installed import call

_SOURCES = {
    "libcuda.so.1": """
static int initialized;
int cuInit(unsigned flags) { initialized = 1; return 0; }
int cuCtxGetCurrent(void **context) { *context = 0; return initialized ? 0 : 3; }
""",
    "libnvidia-ml.so.1": """
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
""",
}


def write_driver(folder: Path) -> Path:
    """Compile both libraries into `folder`, which is then for LD_LIBRARY_PATH. Skips the test where there is no compiler."""
    folder.mkdir()
    for name, source in _SOURCES.items():
        (folder / "driver.c").write_text(source)
        call(["cc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", str(folder / name), str(folder / "driver.c")])
    return folder
