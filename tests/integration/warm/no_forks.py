"""Loaded by a server, it is as if the limit on processes were reached."""

import errno
import os


def _refuse() -> int:
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


os.fork = _refuse
