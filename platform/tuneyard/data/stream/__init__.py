"""Training rows from data of any size. Shards are built ahead of the ranks, in bounded memory, and kept for later epochs and jobs."""

from tuneyard.data.stream.evaluation_rows import EvaluationRows
from tuneyard.data.stream.opening import open_stream
from tuneyard.data.stream.published import Published, published, stream_of
from tuneyard.data.stream.rows import Stream
from tuneyard.data.stream.token_streams import EvaluatedTokens, StreamedTokens
from tuneyard.data.stream.workers import Done, wanted_splits

__all__ = [
    "Done",
    "EvaluatedTokens",
    "EvaluationRows",
    "Published",
    "Stream",
    "StreamedTokens",
    "open_stream",
    "published",
    "stream_of",
    "wanted_splits",
]
