"""Training rows from data of any size: built shard by shard, ahead of the ranks, in bounded memory, and kept for the next epoch and job."""

from tuneyard.data.stream.opening import open_stream
from tuneyard.data.stream.rows import StreamedRows

__all__ = ["StreamedRows", "open_stream"]
