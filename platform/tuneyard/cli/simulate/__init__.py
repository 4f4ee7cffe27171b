"""`tuneyard simulate`: a trace of jobs replayed on clusters, and the output."""
