"""Row metrics: what the answers of a score task are worth, one entry each in `table`.

The JobSpec's names, the columns and sums of scoring, the report and `docs/reference/metrics.md` all read the table. Nothing here is
imported but the standard library, until a metric that needs a package is computed: `api` stands on this room, and operators load it.
"""

from tuneyard.metrics.metric import Figure, Interval, Metric, Need, Row, Totals, needing
from tuneyard.metrics.table import FIGURES, METRICS

__all__ = ["FIGURES", "METRICS", "Figure", "Interval", "Metric", "Need", "Row", "Totals", "needing"]
