"""runtime: see docs/design."""
