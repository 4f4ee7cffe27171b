"""Context parallelism: each row is split along its tokens over a group of ranks (DeepSpeed-Ulysses, Jacobs et al. 2023).

Every rank runs the whole model on its slice of the row. Only attention needs the other tokens. Before it, the ranks exchange tokens for
heads, so that each rank attends over the whole row with its share of the heads. After it, they exchange back.

`row_slice` cuts a batch; `ContextParallel` prepares a model. Both are independent of trainers.
"""

from tuneyard.parallel.context.attention import ATTENTION
from tuneyard.parallel.context.exchange import gathered_tokens
from tuneyard.parallel.context.model import ContextParallel
from tuneyard.parallel.context.row_slice import MASK, row_slice, targets

__all__ = ["ATTENTION", "MASK", "ContextParallel", "gathered_tokens", "row_slice", "targets"]
