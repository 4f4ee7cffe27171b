"""Train and rank tasks: the request, its attempts, and the reaction to a failure."""
