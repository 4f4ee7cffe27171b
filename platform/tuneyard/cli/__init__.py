"""cli: see docs/design."""
