"""Ray sessions, and fork servers that load libraries ahead of the ranks."""
