"""Rows, tokens and classes of difference for comparisons with other trainers."""
