"""DHEN models. Nothing here yet."""
