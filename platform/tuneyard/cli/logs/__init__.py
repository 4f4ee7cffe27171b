"""`tuneyard logs`: the choice of logs, following, and printing."""
