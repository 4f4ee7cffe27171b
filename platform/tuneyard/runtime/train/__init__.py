"""Train and rank tasks: the request, its attempts, and what follows a failure."""
