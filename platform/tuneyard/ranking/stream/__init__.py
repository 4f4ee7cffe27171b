"""Rows of a table during the training of a ranker: windows of row groups in a deterministic order, made flat ahead of the ranks, in bounded
memory and disk.

The machinery is that of streamed texts (`tuneyard.data.stream`): splits, windows, claims, data workers and the ingestion service. This room
adds the splits of a table (`splits`), its shards (`recipe`, `shards`) and its batches by position (`rows`).
"""

from tuneyard.ranking.stream.opening import open_table_stream
from tuneyard.ranking.stream.rows import StreamedTable

__all__ = ["StreamedTable", "open_table_stream"]
