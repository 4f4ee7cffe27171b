"""Score tasks: engines, their pool, and rankers."""
