"""Two score tasks on the same rows, compared row by row.

1. `ScoredOutput` opens the parts of a task; `joined` reads two of them side by side, matched by row number and checked by the hash of
   prompt and references.
2. `row_sums` turns the columns of a part into sums and a value of each row, for each metric that both tasks have.
3. `Units` adds up these sums in at most 4,096 units of resampling, so that memory does not grow with the rows.
4. `resampling` draws from the units: intervals by the paired bootstrap, and the p-value of a paired randomisation test.
5. `compare` makes the `Comparison` of all that, with the rows that differ most.
"""

from tuneyard.scoring.paired.compare import compare
from tuneyard.scoring.paired.comparison import Compared, Comparison, DifferingRow
from tuneyard.scoring.paired.scored_output import ScoredOutput

__all__ = ["Compared", "Comparison", "DifferingRow", "ScoredOutput", "compare"]
