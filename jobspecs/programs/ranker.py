"""Which items are clicked: a DHEN ranker of two layers on a log of clicks with known causes (docs/ranking.md)."""

from tuneyard.ranking import EnsembleLayer, RankerProgram
from tuneyard.ranking.click_log import config_of

LAYER = EnsembleLayer(("dlrm", "dcn", "linear"), outputs=4)
Ranker = RankerProgram(config_of(width=16, layers=(LAYER, LAYER)))
