"""The `tuneyard` command: a thin shell over the other rooms.

`entry` dispatches, `commands` is the list, and each command is a module of its own that is imported when it is called: so
`tuneyard --help` loads nothing but this room.
"""

from tuneyard.cli.entry import main

__all__ = ["main"]
