"""Pages over the run history of this machine, and over the output folders of its jobs."""

from tuneyard.console.local.source import LocalHistory

__all__ = ["LocalHistory"]
