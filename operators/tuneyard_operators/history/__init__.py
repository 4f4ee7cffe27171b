"""Run history of a hub: its writer, and its API for readers with the right to look at jobs.

Importing this room loads no SQLAlchemy: a hub without a database does without.
"""

from tuneyard_operators.history.settings import HistorySettings

__all__ = ["HistorySettings"]
