"""catalog: see docs/design."""
