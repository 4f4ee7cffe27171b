"""Row metrics: the quality of the answers of a score task. Each metric is an entry of `table`.

The JobSpec's names, the columns and sums of scoring, the report and `docs/reference/metrics.md` all read the table. Only the standard
library is imported, until a metric that needs a package is computed, because `api` imports this room, and operators load it.
"""

from tuneyard.metrics.harness import figure_name, harness_figure
from tuneyard.metrics.metric import Figure, Interval, Metric, Need, Row, Totals, needing
from tuneyard.metrics.own import metric_named, own_figures
from tuneyard.metrics.table import FIGURES, METRICS
from tuneyard.metrics.ways import PLAIN, Ways

__all__ = [
    "FIGURES",
    "METRICS",
    "PLAIN",
    "Figure",
    "Interval",
    "Metric",
    "Need",
    "Row",
    "Totals",
    "Ways",
    "figure_name",
    "harness_figure",
    "metric_named",
    "needing",
    "own_figures",
]
