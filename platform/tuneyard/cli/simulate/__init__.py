"""`tuneyard simulate`: a trace of jobs replayed on clusters, and what it prints."""
