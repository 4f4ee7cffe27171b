"""data: see docs/design."""
