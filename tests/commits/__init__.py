"""Attempts that race for one commit log: orders of their storage operations, and what a fence promises in each."""
