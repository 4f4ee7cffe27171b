"""Tune tasks: the choices of a search, its trials, and rows of past runs."""
